import { expect, test } from 'vitest';
import { holdsSetting, type Machine } from '../../../src/cgroups/values/settings.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';

test.each(['0-8191,', '0-8191:1/2,'])(
  'compares the longest accepted list, of %s, within 300 ms of CPU time',
  (part) => {
    // The number of the last CPU has fourteen possible values. No other test runs at the same time.
    const asked = `${part.repeat(Math.floor(4095 / part.length))}N`;
    const machine: Machine = { pageSize: bytes(4096), lastPossible: () => 1 };
    const start = process.cpuUsage();
    expect(holdsSetting('cpuset.cpus', asked, '0-3', machine)).toBe(false);
    // Measures processor time, which other processes do not affect.
    expect(process.cpuUsage(start).user / 1000).toBeLessThan(300);
  },
);
