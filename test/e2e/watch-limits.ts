import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * Polls a pod's cgroup as fast as it can, in a process of its own, and says what it saw when its standard input ends.
 * Arguments: the milliseconds to leave between two readings, the pod's cgroup folder, then the names of its containers' cgroups.
 *
 * A reading takes the pod's limit before and after the containers': as limits are only ever moved in an order that keeps
 * the sum within the pod's, at least one of the two was in force with what was read between. So a sum above both is a
 * violation, and not a torn reading.
 */
export interface WatchReport {
  /** Readings made. */
  readonly readings: number;
  /** The first of them, without repeats. */
  readonly violations: readonly string[];
  /** Each pod limit and sum that was seen, in order, without repeats. */
  readonly seen: readonly string[];
}

const [pace = '0', pod = '', ...containers] = process.argv.slice(2);
const violations: string[] = [];
const seen: string[] = [];
let readings = 0;

const memory = (...path: string[]): number => limit(readFileSync(join(pod, ...path, 'memory.max'), 'utf8').trim());
const limit = (text: string): number => (text === 'max' ? Infinity : Number(text));

/** CPU as a rate: quota by period. */
function cpu(...path: string[]): number {
  const [quota = '', period = ''] = readFileSync(join(pod, ...path, 'cpu.max'), 'utf8')
    .trim()
    .split(' ');
  return limit(quota) / Number(period);
}

function check(what: string, read: (...path: string[]) => number): void {
  const before = read();
  const sum = containers.reduce((all, container) => all + read(container), 0);
  const after = read();
  const line = `${what}: containers ${round(sum)}, pod ${round(before)}${before === after ? '' : ` then ${round(after)}`}`;
  // A millionth: rates are not exact numbers.
  const above = sum > Math.max(before, after) * (1 + 1e-6);
  if (above && !violations.includes(line) && violations.length < 20) violations.push(line);
  if (before === after && !seen.includes(line) && seen.length < 1000) seen.push(line);
  readings += 1;
}

const round = (value: number): number => Math.round(value * 1e6) / 1e6;

function poll(): void {
  check('memory', memory);
  check('cpu', cpu);
  // Lets the end of standard input be noticed; nothing is waited for.
  if (!ended && pace === '0') setImmediate(poll);
  else if (!ended) setTimeout(poll, Number(pace));
  else process.stdout.write(JSON.stringify({ readings, violations, seen } satisfies WatchReport));
}

let ended = false;
process.stdin.on('end', () => (ended = true)).resume();
process.stderr.write('watching\n');
poll();
