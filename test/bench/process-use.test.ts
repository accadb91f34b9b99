import { expect, test } from 'vitest';
import { parseCpu, parsePeakRss, parseResident } from '../../bench/process-use.ts';

test('parses CPU time and memory of a process with any name', () => {
  const stat = '42 (a) (b c) S 1 42 42 0 -1 4194304 100 0 0 0 250 125 0 0 20 0 11 0 12345 1000000 500';
  expect(parseCpu(stat)).toBe(3_750_000);
  expect(parsePeakRss('Name:\tnode\nVmPeak:\t  999 kB\nVmHWM:\t   81920 kB\nVmRSS:\t 100 kB\n')).toBe(80);
  const status = 'VmHWM:\t 99999 kB\nVmRSS:\t 61440 kB\nRssAnon:\t 20480 kB\nRssFile:\t 40960 kB\nRssShmem:\t 0 kB\n';
  expect(parseResident(status)).toEqual({ all: 60, anonymous: 20, ofFiles: 40 });
  expect(() => parseResident('VmRSS:\t 61440 kB\n')).toThrow('no RssAnon in the status of the process');
});
