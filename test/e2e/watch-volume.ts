import { readFileSync, statfsSync } from 'node:fs';

/**
 * Polls memory.max of some cgroups and the size of a volume every millisecond, in a process of its own, and says what it saw when its
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
  // Every millisecond: on one processor polling without a pause takes the time from what it looks at.
  if (!ended) setTimeout(poll, 1);
  else process.stdout.write(JSON.stringify({ readings, seen } satisfies VolumeReport));
}

process.stdin.on('end', () => (ended = true)).resume();
poll();
// From the first reading on.
process.stderr.write('watching\n');
