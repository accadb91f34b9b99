import { readFileSync, statfsSync } from 'node:fs';

/**
 * Polls a cgroup's memory.max and the size of a volume as fast as it can, in a process of its own, and says what it saw when its
 * standard input ends. Arguments: the files memory.max, separated by commas, and the volume's folder.
 *
 * A reading takes the limits before and after the volume: only those between which no limit moved count, so each is true for
 * one instant.
 */
export interface VolumeReport {
  readonly readings: number;
  /** `<limit>,<limit> <volume size>` in bytes, in order, without repeats. */
  readonly seen: readonly string[];
}

const [files = '', folder = ''] = process.argv.slice(2);
const seen: string[] = [];
let readings = 0;
let ended = false;

const limits = (): string =>
  files
    .split(',')
    .map((file) => readFileSync(file, 'utf8').trim())
    .join(',');

function poll(): void {
  const before = limits();
  const { blocks, bsize } = statfsSync(folder);
  if (before === limits()) {
    readings += 1;
    const line = `${before} ${blocks * bsize}`;
    if (seen.at(-1) !== line) seen.push(line);
  }
  // Lets the end of standard input be noticed; nothing is waited for.
  if (!ended) setImmediate(poll);
  else process.stdout.write(JSON.stringify({ readings, seen } satisfies VolumeReport));
}

process.stdin.on('end', () => (ended = true)).resume();
process.stderr.write('watching\n');
poll();
