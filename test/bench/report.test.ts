import { describe, expect, test } from 'vitest';
import type { Measurement } from '../../bench/measure.ts';
import { judgeWork } from '../../bench/bars.ts';
import { allBarsMet, json, table } from '../../bench/report.ts';
import type { Results } from '../../bench/run.ts';
import { type WorkResult, works } from '../../bench/work/index.ts';

const measurement = (op: string, inFlight: number, ratio: number, rpsRatio: number): Measurement => ({
  op,
  inFlight,
  direct: { p50us: 100, p99us: 200, rps: 9000 },
  shim: { p50us: 100 * ratio, p99us: 300, rps: 9000 * rpsRatio, cpuUs: 31.25 },
  ratio,
  rpsRatio,
});

const results = (given: Partial<Results>): Results => ({
  measurements: [],
  resources: undefined,
  workResults: [],
  ...given,
});
const work = (name: string, p50: number, unit: WorkResult['unit'] = 'ms'): WorkResult => ({
  work: name,
  unit,
  p50,
  samples: 7,
});

describe('bars', () => {
  const good = { rssMB: 80, startMs: 300, rssAtEndMB: 90 };

  test('are met if a measurement equals them', () => {
    const measurements = [
      measurement('Version', 1, 1.7, 0.1),
      measurement('Version', 16, 9, 0.85),
      measurement('ListContainers 500', 1, 1.15, 0.1),
      measurement('ContainerStatus amended', 1, 2.5, 0.1),
      measurement('RuntimeConfig handled', 1, 20, 0.1),
    ];
    expect(allBarsMet(results({ measurements, resources: good }))).toBe(true);
  });

  test('are not met if a single measurement exceeds one', () => {
    expect(allBarsMet(results({ measurements: [measurement('Version', 1, 1.701, 1)] }))).toBe(false);
    expect(allBarsMet(results({ measurements: [measurement('Version', 16, 1, 0.849)] }))).toBe(false);
    expect(allBarsMet(results({ resources: { ...good, rssMB: 80.1 } }))).toBe(false);
    expect(allBarsMet(results({ resources: { ...good, startMs: 300.1 } }))).toBe(false);
  });

  test('apply to works in their units, but not to parts of a work', () => {
    const most = [
      work('Plan for 10 containers', 100, 'us'),
      work('ResizePod of 3 containers', 5),
      work('  of all, in fsync', 1e6),
      work('Recovery of 250 pods', 1500),
      { ...work('Packaged daemon, first answer', 250), on: 'Node 20' },
      work('Packaged daemon, memory when idle', 60, 'MB'),
      work('  of bare Node', 1e6, 'MB'),
    ];
    expect(allBarsMet(results({ workResults: most }))).toBe(true);
    for (const [index, bar] of [100, 5, undefined, 1500, 250, 60, undefined].entries()) {
      if (bar === undefined) continue;
      const slower = most.map((one, at) => (at === index ? { ...one, p50: bar * 1.001 } : one));
      expect(allBarsMet(results({ workResults: slower }))).toBe(false);
    }
  });

  test('exist for each work', () => {
    const judged = works.map(({ name }) => judgeWork(work(name, 0)));
    expect(judged.every((verdict) => verdict?.met === true)).toBe(true);
  });
});

test('table prints aligned columns with the bars', () => {
  const text = table({
    measurements: [measurement('Version', 1, 1.5, 0.66), measurement('Version', 16, 1.6, 0.7)],
    resources: { rssMB: 91.5, startMs: 250, rssAtEndMB: 95 },
    workResults: [
      { ...work('ResizePod of 3 containers', 3.25), p99: 12.5 },
      work('  of all, in fsync', 1),
      { ...work('Packaged daemon, first answer', 99.5), p99: 150, on: 'Node 20.20.2' },
    ],
  });
  const lines = text.split('\n');
  expect(lines[2]).toContain('p50 <= 1.7: met');
  expect(lines[3]).toContain('calls/s >= 0.85: NOT MET');
  expect(lines[2]?.indexOf('9000')).toBe(lines[3]?.indexOf('9000'));
  expect(text).toMatch(/memory under load +91\.5 MB +<= 80: NOT MET/);
  expect(text).toMatch(/first answer +250 ms +<= 300: met/);
  expect(text).toMatch(/^ResizePod of 3 containers +3\.25 +12\.50 +ms +p50 <= 5 ms: met$/m);
  expect(text).toMatch(/^ {2}of all, in fsync +1\.00 +ms$/m);
  expect(text).toMatch(/^Packaged daemon, first answer \(Node 20\.20\.2\) +99\.50 +150\.00 +ms +p50 <= 250 ms: met$/m);
});

test('json prints one array for any combination of measurements', () => {
  const recovery = work('Recovery of 250 pods', 700);
  const version = measurement('Version', 1, 1.5, 0.66);
  const resources = { rssMB: 60, startMs: 200, rssAtEndMB: 70 };
  expect(JSON.parse(json(results({ workResults: [recovery] })))).toEqual([recovery]);
  const all = { measurements: [version], resources, workResults: [recovery] };
  expect(JSON.parse(json(all))).toEqual([version, recovery, resources]);
});
