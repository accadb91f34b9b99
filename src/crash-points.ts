import { appendFileSync } from 'node:fs';

/** Set by the bundler: true in the test build that may be stopped anywhere, false in the one that is shipped. */
declare const __CRASH_POINTS__: boolean | undefined;

/** How often each point has been passed. */
const passed = new Map<string, number>();

/**
 * A place where the process may die. In the test build (`dist/tools/cri-resize-shim-crash.js`) it ends here by SIGKILL when
 * CRI_RESIZE_SHIM_CRASH is `name` (the first time) or `name#N` (the Nth time), and CRI_RESIZE_SHIM_CRASH_LOG names a file
 * that gets a line `name#N` for each point passed. Nothing anywhere else: the shipped build does not contain it.
 */
export function crashPoint(name: string): void {
  if (typeof __CRASH_POINTS__ !== 'undefined' && __CRASH_POINTS__) {
    const count = (passed.get(name) ?? 0) + 1;
    passed.set(name, count);
    const { CRI_RESIZE_SHIM_CRASH: wanted, CRI_RESIZE_SHIM_CRASH_LOG: log } = process.env;
    // Before the end, and synchronously: the last line is the point where it ended.
    if (log !== undefined && log !== '') appendFileSync(log, `${name}#${count}\n`);
    // The kernel does not return from this one (signal(7)): no line below it runs.
    if (wanted === `${name}#${count}` || (wanted === name && count === 1)) process.kill(process.pid, 'SIGKILL');
  }
}
