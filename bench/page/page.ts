import { readFile, writeFile } from 'node:fs/promises';
import { cpus, release } from 'node:os';
import { join } from 'node:path';
import { withTable } from '../../test/runner/results-reporter.ts';
import { packageRoot } from '../../tools/download/places.ts';
import type { Results } from '../run.ts';
import { growthTable, latencyTable, limitTable, memoryTable, throughputTable, workTable } from './tables.ts';

/** The page that has figures of a run between marks. */

const COMMAND = 'npm run bench';
export const PERFORMANCE = 'docs/performance.md';

/** The text between the marks of docs/performance.md until a run is written. */
export const NO_RUN = 'No run is recorded here yet: `npm run bench -- --write` on a quiet machine does it.';

/** Replaces the results of the previous run on the page. */
export async function writePage(results: Results, now = new Date()): Promise<void> {
  const file = join(packageRoot(), PERFORMANCE);
  const page = await readFile(file, 'utf8');
  await writeFile(file, withTable(page, COMMAND, performanceText(results, now)));
}

function whereAndWhen({ versions }: Results, now: Date): string {
  const [processor] = cpus();
  const [kernel = ''] = /^\d+\.\d+/.exec(release()) ?? [];
  const machine = `${cpus().length} processors (${processor?.model.trim() ?? 'unknown'}), Linux ${kernel}`;
  const used = Object.entries(versions).map(([name, version]) => `${name} ${version}`);
  return `One run on ${now.toISOString().slice(0, 10)}, on a machine with ${machine}:\n${used.join(', ')}.`;
}

/** The part of docs/performance.md between the marks. */
export function performanceText(results: Results, now: Date): string {
  const { measurements, workResults } = results;
  return [
    whereAndWhen(results, now),
    '### Limits',
    limitTable(results),
    '### One call in flight',
    'Median and 99th percentile in microseconds; in parentheses the median as a multiple of the direct one.',
    latencyTable(measurements),
    '### Sixteen calls in flight',
    'Calls a second, in parentheses as a share of the direct ones; then median and 99th percentile in microseconds.',
    throughputTable(measurements),
    '### Memory',
    memoryTable(workResults),
    '### Work of the shim',
    workTable(workResults),
    '### Growth',
    growthTable(workResults),
  ].join('\n\n');
}
