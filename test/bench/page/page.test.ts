import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { bars } from '../../../bench/bars.ts';
import { operations } from '../../../bench/operations.ts';
import { NO_RUN, PERFORMANCE, performanceText } from '../../../bench/page/page.ts';
import type { Results } from '../../../bench/run.ts';
import { growthSizes } from '../../../bench/work/growth.ts';
import { measurement, results, side, work } from '../results.ts';

const GROWTH = ['memory', 'first answer', 'recovery', 'status page', 'metrics scrape', 'resizectl get pods'];
const PROCESSES = ['Packaged daemon', 'Single executable', 'Byte relay', 'Typed proxy', 'Bare Node'];
const now = new Date('2026-01-02T03:04:05Z');

/** A run that has measured everything. */
function complete(): Results {
  const measurements = operations.flatMap(({ name, clients, inFlight }) =>
    clients.flatMap((client) =>
      inFlight.map((count) => measurement(name, count, side(150, 1234), client === 'kubelet' ? 'grpc-go' : client)),
    ),
  );
  const named = bars.map(({ name }) => name).filter((name) => !name.startsWith('Growth'));
  const columns = ['memory when idle', 'anonymous memory when idle'];
  const workResults = [
    ...named.map((name) => work(name, 1)),
    ...PROCESSES.flatMap((name) => columns.map((column) => work(`${name}, ${column}`, 1, 'MB'))),
    ...growthSizes.flatMap((pods) => GROWTH.map((name) => work(`Growth, ${name}`, pods, 'ms', `${pods} pods`))),
    ...growthSizes.map((pods) => work('Growth, longest turn of all', 1, 'ms', `${pods} pods`)),
    work('Growth, heap of each pod and container', 2.5, 'KiB'),
  ];
  return results({ measurements, workResults });
}

/** Returns the first cell of each row. */
const rowsOf = (text: string): string[] => [...text.matchAll(/^\| ([^|]+) \|/gm)].map(([, cell = '']) => cell.trim());

/** Returns what a page has between the marks of the bench. */
function written(page: string): string {
  const [, text] =
    /<!-- npm run bench: begin -->\n\n(.*)\n\n<!-- npm run bench: end -->/s.exec(readFileSync(page, 'utf8')) ?? [];
  if (text === undefined) throw new Error(`${page} lacks the marks of npm run bench`);
  return text;
}

/** Throws unless the text has each row that a complete run has. */
function expectAllRows(text: string): void {
  const rows = rowsOf(text);
  const calls = operations.map(({ name }) => name);
  const limits = bars.map(({ name }) => name);
  const growth = [...GROWTH, 'longest turn of all', 'heap of each pod and container'];
  for (const row of [...calls, ...limits, ...PROCESSES, ...growth]) expect(rows).toContain(row);
}

test('the text of a complete run has a row for each call, limit, process and growth', () => {
  const text = performanceText(complete(), now);
  expectAllRows(text);
  expect(text).toContain('One run on 2026-01-02');
  expect(text).toMatch(
    /^\| Version \| grpc-go \| 100 \/ 200 \| 120 \/ 240 \(1\.20\) \| not measured \| 150 \/ 300 \(1\.50\) \|/m,
  );
  expect(text).toMatch(/^\| Version \| grpc-go \| 10,000\/s; 100 \/ 200 \| 8,000\/s \(0\.80\); 120 \/ 240 \|/m);
  expect(text).toMatch(/^\| first answer \| ms \| 10\.0 \| 110 \| 500 \| 1,000 \|$/m);
  expect(text).toMatch(/^\| heap of each pod and container \| KiB \| {2}\| {2}\| {2}\| 2\.50 \|$/m);
});

test('docs/performance.md has all rows of a run, or says that none was written', () => {
  const text = written(PERFORMANCE);
  if (text !== NO_RUN) expectAllRows(text);
});
