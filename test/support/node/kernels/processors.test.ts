import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { leastBoundProcessor, processorsIn } from './processors.ts';

let proc: string;
beforeEach(() => {
  proc = mkdtempSync(join(tmpdir(), 'proc-'));
  mkdirSync(join(proc, 'sys'));
});
afterEach(() => rmSync(proc, { recursive: true }));

function runs(pid: string, name: string, processors: string): void {
  mkdirSync(join(proc, pid));
  writeFileSync(join(proc, pid, 'status'), `Name:\t${name}\nCpus_allowed:\tf\nCpus_allowed_list:\t${processors}\n`);
}

test('a list of processors is parsed, with single numbers and ranges', () => {
  expect(['0', '0-2,5', '3,7-8'].map(processorsIn)).toEqual([[0], [0, 1, 2, 5], [3, 7, 8]]);
});

test('a kernel is bound to the processor with the fewest kernels', () => {
  runs('self', 'node', '0-3');
  runs('10', 'linux.uml', '0');
  runs('11', 'linux.uml', '1');
  runs('12', 'linux.uml', '2');
  runs('13', 'linux.uml', '1');
  // Neither says how busy a processor is with kernels.
  runs('14', 'linux.uml', '0-3');
  runs('15', 'make', '3');
  expect(leastBoundProcessor('linux.uml', [], proc)).toBe(3);
  runs('16', 'linux.uml', '3');
  expect(leastBoundProcessor('linux.uml', [], proc)).toBe(0);
});

test('a kernel is bound to no processor that this process may not use', () => {
  runs('self', 'node', '1-2');
  runs('10', 'linux.uml', '1');
  mkdirSync(join(proc, '11'));
  expect(leastBoundProcessor('linux.uml', [], proc)).toBe(2);
});

test('two kernels that start at the same time are bound to different processors', () => {
  runs('self', 'node', '0-1');
  expect(leastBoundProcessor('linux.uml', [0], proc)).toBe(1);
  expect(leastBoundProcessor('linux.uml', [0, 1, 1], proc)).toBe(0);
  runs('10', 'linux.uml', '0');
  expect(leastBoundProcessor('linux.uml', [0, 1, 1], proc)).toBe(1);
});
