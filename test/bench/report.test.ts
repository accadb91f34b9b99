import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { bars, judge } from '../../bench/bars.ts';
import { operations } from '../../bench/operations.ts';
import { NO_RUN, PERFORMANCE, performanceText } from '../../bench/page/page.ts';
import { json, table } from '../../bench/report.ts';
import type { Results } from '../../bench/run.ts';
import { median, percentile, Samples } from '../../bench/statistics.ts';
import { growthSizes } from '../../bench/work/growth.ts';
import { measurement, relay, results, side, work } from './results.ts';

const verdictOf = (name: string, given: Parameters<typeof results>[0]) => {
  const found = judge(results(given)).find((verdict) => verdict.name === name);
  if (found === undefined) throw new Error(`no verdict about ${name}`);
  return found;
};

test('a latency limit is a multiple of the time that the relay adds', () => {
  const name = 'Version, 1 in flight: time that the shim adds';
  const at = (p50us: number) => verdictOf(name, { measurements: [measurement('Version', 1, side(p50us, 1))] });
  expect(at(128)).toMatchObject({ figure: 1.4, isMet: true, limit: 'at most 1.4' });
  expect(at(129)).toMatchObject({ figure: 1.45, isMet: false });
});

test("a throughput limit is a minimum share of the relay's calls per second", () => {
  const name = 'Version, 16 in flight: calls a second';
  const at = (rps: number) => verdictOf(name, { measurements: [measurement('Version', 16, side(1, rps))] });
  expect(at(relay.rps * 0.93)).toMatchObject({ isMet: true, limit: 'at least 0.93' });
  expect(at(relay.rps * 0.92)).toMatchObject({ isMet: false });
});

test('the limit of a call applies to its named client, and to bare frames if grpc-go was not measured', () => {
  const status = 'Status verbose, amended';
  const name = `${status}, 16 in flight`;
  const [fast, slow] = [side(160, 1), side(161, 1)];
  const both = [measurement(status, 16, slow), measurement(status, 16, fast, 'frames')];
  expect(verdictOf(name, { measurements: both })).toMatchObject({ figure: 1.61, isMet: false });
  expect(verdictOf(name, { measurements: both.slice(1) })).toMatchObject({ figure: 1.6, isMet: true });
  const amended = [measurement('ContainerStatus, amended', 1, fast, 'frames')];
  const byFrames = 'ContainerStatus, amended, frames, 1 in flight';
  expect(verdictOf(byFrames, { measurements: amended })).toMatchObject({ isMet: true });
  expect(judge(results({ measurements: [measurement('ContainerStatus, amended', 1, slow)] }))).toEqual([]);
});

test('the CPU time of the calls that kubelet repeats is judged once all are measured', () => {
  const all = operations.filter(({ inFlight, backend }) => inFlight.length > 1 && backend !== 'fake');
  const measurements = all.flatMap(({ name }) => [1, 16].map((count) => measurement(name, count, side(1, 1))));
  const name = 'CPU time of the calls that kubelet repeats';
  expect(verdictOf(name, { measurements })).toMatchObject({ figure: 1, isMet: true, limit: 'at most 1.75' });
  const without = measurements.filter(({ op }) => op !== 'Status verbose, amended');
  expect(judge(results({ measurements: without })).map((verdict) => verdict.name)).not.toContain(name);
});

test.each([
  ['ResizePod of 3 containers', 3],
  ['ResizePod of 3 containers, CPU time', 4],
  ['Recovery of 1,000 pods', 600],
  ['Packaged daemon, first answer', 110],
  ['Packaged daemon, memory when idle', 58],
  ['Single executable, memory under load', 72],
  ['Storm, ResizePod: slowest pod', 3],
])('%s meets its limit at %d and exceeds it above', (name, limit) => {
  expect(verdictOf(name, { workResults: [work(name, limit)] })).toMatchObject({ figure: limit, isMet: true });
  expect(verdictOf(name, { workResults: [work(name, limit * 1.001)] })).toMatchObject({ isMet: false });
});

test('the throughput of a storm has a lower limit', () => {
  const name = 'Storm, ResizePod: throughput';
  expect(verdictOf(name, { workResults: [work(name, 0.95, 'times')] })).toMatchObject({ isMet: true });
  expect(verdictOf(name, { workResults: [work(name, 0.94, 'times')] })).toMatchObject({ isMet: false });
});

test('the longest turn of the event loop is judged on the largest node', () => {
  const name = 'Growth, longest turn of all';
  const workResults = [work(name, 99, 'ms', '500 pods'), work(name, 10, 'ms', '1000 pods')];
  expect(verdictOf(name, { workResults })).toMatchObject({ figure: 10, isMet: true });
});

test('growth is judged relative to the number of pods, by the figure that grows most', () => {
  const name = 'Growth from 110 to 1,000 pods, of what grows most';
  const grown = (most: number) => [
    work('Growth, recovery', 11, 'ms', '110 pods'),
    work('Growth, recovery', 100 * most, 'ms', '1000 pods'),
    work('Growth, memory', 50, 'MB', '110 pods'),
    work('Growth, memory', 60, 'MB', '1000 pods'),
    work('Growth, longest turn, recovery', 0.01, 'ms', '110 pods'),
    work('Growth, longest turn, recovery', 9, 'ms', '1000 pods'),
  ];
  expect(verdictOf(name, { workResults: grown(1) }).figure).toBeCloseTo(1);
  expect(verdictOf(name, { workResults: grown(1.2) })).toMatchObject({ isMet: false });
});

test('each operation with a limit is measured, and the names of limits are unique', () => {
  const names = operations.map(({ name }) => name);
  const measurements = operations.flatMap(({ name, clients, inFlight }) =>
    clients.flatMap((client) =>
      inFlight.map((count) => measurement(name, count, side(1, 1), client === 'kubelet' ? 'grpc-go' : client)),
    ),
  );
  expect(judge(results({ measurements }))).toHaveLength(11);
  expect(new Set(names).size).toBe(names.length);
  expect(new Set(bars.map(({ name }) => name)).size).toBe(bars.length);
});

const run = results({
  measurements: [measurement('Version', 1, side(150, 6600)), measurement('Version', 16, side(160, 7000), 'frames')],
  workResults: [
    { ...work('ResizePod of 3 containers', 3.25), p99: 12.5 },
    work('  of all, in fsync', 1),
    work('Packaged daemon, first answer', 99.5, 'ms', 'Node 26.10.0'),
  ],
});

test('table prints aligned columns, and each limit with its figure', () => {
  const text = table(run);
  const lines = text.split('\n');
  expect(lines[1]).toMatch(/^Version +grpc-go +1 +direct +100 +200 +10000 +31\.3$/);
  expect(lines[3]).toMatch(/^ +shim +150 +300 +6600 +31\.3 +1\.50 +0\.66$/);
  expect(lines[6]?.indexOf('7000')).toBe(lines[3]?.indexOf('6600'));
  expect(text).toMatch(/^ResizePod of 3 containers +3\.25 +12\.50 +ms$/m);
  expect(text).toMatch(/^ {2}of all, in fsync +1\.00 +ms$/m);
  expect(text).toMatch(/^Packaged daemon, first answer \(Node 26\.10\.0\) +99\.50 +ms$/m);
  expect(text).toMatch(
    /^Version, 1 in flight: time that the shim adds +at most 1\.4 +2\.50 +times the relay's +NOT MET$/m,
  );
  expect(text).toMatch(/^Packaged daemon, first answer +at most 110 +99\.50 +ms +met$/m);
});

test('json prints everything in one object, with the limits', () => {
  expect(JSON.parse(json(run))).toMatchObject({
    versions: { Node: '26.10.0' },
    calls: run.measurements,
    works: run.workResults,
    limits: [{ figure: 2.5 }, { figure: 0.875 }, { figure: 3.25 }, { figure: 99.5 }],
  });
});

describe('percentile', () => {
  test('percentile returns the smallest value that covers the given share of all values', () => {
    const hundred = Array.from({ length: 100 }, (_, index) => index + 1);
    expect([0.01, 0.5, 0.99, 1].map((share) => percentile(hundred, share))).toEqual([1, 50, 99, 100]);
  });

  test('percentile returns the only value of a single sample', () => {
    expect(percentile([7], 0.5)).toBe(7);
    expect(percentile([7], 0.99)).toBe(7);
  });

  test('percentile throws RangeError without values', () => {
    expect(() => percentile([], 0.5)).toThrow(RangeError);
  });
});

test('median accepts values in any order', () => {
  expect(median([30, 1, 2])).toBe(2);
});

test('Samples grows beyond its initial capacity, and returns sorted numbers', () => {
  const samples = new Samples();
  for (let value = 10_000; value > 0; value -= 1) samples.add(value);
  const sorted = samples.sorted();
  expect([samples.count, sorted.length, sorted[0], sorted[9999]]).toEqual([10_000, 10_000, 1, 10_000]);
});

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

/** Returns the text between the marks of the bench on a page. */
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
