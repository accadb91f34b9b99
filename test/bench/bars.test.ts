import { expect, test } from 'vitest';
import { bars, judge } from '../../bench/bars.ts';
import { operations } from '../../bench/operations.ts';
import { measurement, relay, results, side, work } from './results.ts';

const verdictOf = (name: string, given: Parameters<typeof results>[0]) => {
  const found = judge(results(given)).find((verdict) => verdict.name === name);
  if (found === undefined) throw new Error(`no verdict about ${name}`);
  return found;
};

test('a latency limit is a multiple of the time that the relay adds', () => {
  const name = 'Version, 1 in flight: time that the shim adds';
  const at = (p50us: number) => verdictOf(name, { measurements: [measurement('Version', 1, side(p50us, 1))] });
  expect(at(130)).toMatchObject({ figure: 1.5, isMet: true, limit: 'at most 1.5' });
  expect(at(131)).toMatchObject({ figure: 1.55, isMet: false });
});

test("a throughput limit is a minimum share of the relay's calls per second", () => {
  const name = 'Version, 16 in flight: calls a second';
  const at = (rps: number) => verdictOf(name, { measurements: [measurement('Version', 16, side(1, rps))] });
  expect(at(relay.rps * 0.95)).toMatchObject({ isMet: true, limit: 'at least 0.95' });
  expect(at(relay.rps * 0.94)).toMatchObject({ isMet: false });
});

test('the limit of a call applies to its named client, and to bare frames if grpc-go was not measured', () => {
  const status = 'Status verbose, amended';
  const [fast, slow] = [side(150, 1), side(151, 1)];
  const both = [measurement(status, 1, slow), measurement(status, 1, fast, 'frames')];
  expect(verdictOf(status, { measurements: both })).toMatchObject({ figure: 1.51, isMet: false });
  expect(verdictOf(status, { measurements: both.slice(1) })).toMatchObject({ figure: 1.5, isMet: true });
  const handled = [measurement('RuntimeConfig, handled', 1, side(250, 1), 'grpc-js')];
  expect(verdictOf('RuntimeConfig, handled, grpc-js', { measurements: handled })).toMatchObject({ isMet: true });
  expect(judge(results({ measurements: [measurement('RuntimeConfig, handled', 1, slow)] }))).toEqual([]);
});

test.each([
  ['ResizePod of 3 containers', 2],
  ['ResizePod of 3 containers, CPU time', 3],
  ['Recovery of 1,000 pods', 600],
  ['Packaged daemon, first answer', 100],
  ['Packaged daemon, memory when idle', 56],
  ['Single executable, anonymous memory under load', 18],
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
  expect(judge(results({ measurements }))).toHaveLength(7);
  expect(new Set(names).size).toBe(names.length);
  expect(new Set(bars.map(({ name }) => name)).size).toBe(bars.length);
});
