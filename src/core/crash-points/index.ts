import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';

/** Set by the bundler: true in the test build that may be stopped anywhere, false in the one that is shipped. */
declare const __CRASH_POINTS__: boolean | undefined;

/** Where the process may die: before and after each change that outlives it. */
export const crashPoints = [
  'serving',
  'journal-write-before',
  'journal-write-synced',
  'journal-write-renamed',
  'journal-write-after',
  'journal-remove-before',
  'journal-remove-unlinked',
  'journal-remove-after',
  'cgroup-write-before',
  'cgroup-write-after',
  'remount-before',
  'remount-after',
  'backend-call-before',
  'backend-call-after',
] as const;

export type CrashPoint = (typeof crashPoints)[number];

/**
 * A place where the process may die. Each has a name: the point, and what it is about (`cgroup-write-before memory.max`).
 *
 * In the test build (`dist/tools/cri-resize-shim-crash.js`) CRI_RESIZE_SHIM_CRASH_LOG names a file that gets a line with the
 * name of each point passed, and CRI_RESIZE_SHIM_CRASH a file that says where it ends, read at each point so that a process
 * can be armed while it runs. Each line `name#N` in it is counted down as the point is passed, and gone when the process ends
 * there by SIGKILL; with `name#N SIGSTOP` it halts there instead, until SIGCONT.
 * Nothing anywhere else: the shipped build does not contain it.
 */
export function crashPoint(point: CrashPoint, about = ''): void {
  if (typeof __CRASH_POINTS__ !== 'undefined' && __CRASH_POINTS__) {
    const name = about === '' ? point : `${point} ${about}`;
    const { CRI_RESIZE_SHIM_CRASH: armed = '', CRI_RESIZE_SHIM_CRASH_LOG: log = '' } = process.env;
    // Before the end, and synchronously: the last line is the point where it ended.
    if (log !== '') appendFileSync(log, `${name}\n`);
    if (armed !== '') endIfArmed(armed, name);
  }
}

function endIfArmed(file: string, name: string): void {
  const lines = readFileSync(file, 'utf8').split('\n').filter(Boolean);
  const signals: string[] = [];
  const rest = lines.flatMap((line) => {
    const [, wanted, count, signal = 'SIGKILL'] = /^(.*)#(\d+)(?: (SIGSTOP))?$/.exec(line) ?? [];
    if (wanted !== name) return [line];
    const left = Number(count) - 1;
    if (left > 0) return [line.replace(`#${count}`, `#${left}`)];
    signals.push(signal);
    return [];
  });
  if (!lines.some((line) => line.startsWith(`${name}#`))) return;
  writeFileSync(file, rest.join('\n'));
  // The kernel does not return from either signal (signal(7)) before it is over.
  for (const signal of signals) process.kill(process.pid, signal);
}
