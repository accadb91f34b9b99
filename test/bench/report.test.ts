import { describe, expect, it } from 'vitest';
import type { Measurement } from '../../bench/measure.ts';
import { parseCpu, parsePeakRss } from '../../bench/process-use.ts';
import { allBarsMet, table } from '../../bench/report.ts';

const measurement = (op: string, inFlight: number, ratio: number, rpsRatio: number): Measurement => ({
  op,
  inFlight,
  direct: { p50us: 100, p99us: 200, rps: 9000 },
  shim: { p50us: 100 * ratio, p99us: 300, rps: 9000 * rpsRatio, cpuUs: 31.25 },
  ratio,
  rpsRatio,
});

describe('bars', () => {
  const good = { rssMB: 80, startMs: 300, rssAtEndMB: 90 };

  it('are met up to their value', () => {
    const measurements = [
      measurement('Version', 1, 1.7, 0.1),
      measurement('Version', 16, 9, 0.85),
      measurement('ListContainers 500', 1, 1.15, 0.1),
      measurement('ContainerStatus amended', 1, 2.5, 0.1),
      measurement('RuntimeConfig handled', 1, 20, 0.1),
    ];
    expect(allBarsMet(measurements, good)).toBe(true);
  });

  it('are missed by anything beyond, one by one', () => {
    expect(allBarsMet([measurement('Version', 1, 1.701, 1)], good)).toBe(false);
    expect(allBarsMet([measurement('Version', 16, 1, 0.849)], good)).toBe(false);
    expect(allBarsMet([], { rssMB: 80.1, startMs: 300, rssAtEndMB: 90 })).toBe(false);
    expect(allBarsMet([], { rssMB: 80, startMs: 300.1, rssAtEndMB: 90 })).toBe(false);
  });
});

it('prints columns that stand below each other, with the bars beside', () => {
  const text = table([measurement('Version', 1, 1.5, 0.66), measurement('Version', 16, 1.6, 0.7)], {
    rssMB: 91.5,
    startMs: 250,
    rssAtEndMB: 95,
  });
  const lines = text.split('\n');
  expect(lines[2]).toContain('p50 <= 1.7: met');
  expect(lines[3]).toContain('calls/s >= 0.85: NOT MET');
  expect(lines[2]?.indexOf('9000')).toBe(lines[3]?.indexOf('9000'));
  expect(text).toMatch(/memory under load +91\.5 MB +<= 80: NOT MET/);
  expect(text).toMatch(/first answer +250 ms +<= 300: met/);
});

it('reads what a process has used, whatever its name', () => {
  const stat = '42 (a) (b c) S 1 42 42 0 -1 4194304 100 0 0 0 250 125 0 0 20 0 11 0 12345 1000000 500';
  expect(parseCpu(stat)).toBe(3_750_000);
  expect(parsePeakRss('Name:\tnode\nVmPeak:\t  999 kB\nVmHWM:\t   81920 kB\nVmRSS:\t 100 kB\n')).toBe(80);
});
