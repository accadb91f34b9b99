/** Points at which tests kill the process, to prove that a restart recovers. */
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';

/** Set by the bundler: true in the test build with crash points, false in the shipped build. */
declare const __CRASH_POINTS__: boolean | undefined;

/** The crash points: before and after each change that outlives the process. */
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
 * Marks a place where tests can kill the process. Its name is the point and its subject (`cgroup-write-before
 * memory.max`).
 *
 * In the test build (`dist/tools/cri-resize-shim-crash.js`), each point passed appends its name to the file in
 * CRI_RESIZE_SHIM_CRASH_LOG. The file in CRI_RESIZE_SHIM_CRASH has lines `name#N`: the Nth pass of that point kills the
 * process with SIGKILL. `name#N SIGSTOP` stops it there until SIGCONT. The file is read at each point, so that a test
 * can write it while the process runs; each pass decrements N, and the signal removes the line. The shipped build
 * contains none of this.
 */
export function crashPoint(point: CrashPoint, about = ''): void {
  if (typeof __CRASH_POINTS__ !== 'undefined' && __CRASH_POINTS__) {
    const name = about === '' ? point : `${point} ${about}`;
    const { CRI_RESIZE_SHIM_CRASH: armed = '', CRI_RESIZE_SHIM_CRASH_LOG: log = '' } = process.env;
    // Synchronously and before the signal, so that the last line is the point where the process died.
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
  // kill(2) does not return before the signal to our own process has taken effect (signal(7)).
  for (const signal of signals) process.kill(process.pid, signal);
}
