import type nodeFs from 'node:fs';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { CgroupFiles } from '../../src/cgroups/file.ts';

/** Descriptors that the process may still open, if they are few. */
const free = { descriptors: Infinity };
vi.mock('node:fs', async (original) => {
  const fs = await original<typeof nodeFs>();
  return {
    ...fs,
    openSync: (...args: Parameters<typeof fs.openSync>) => {
      if (free.descriptors === 0) throw Object.assign(new Error('EMFILE: too many open files'), { code: 'EMFILE' });
      free.descriptors -= 1;
      return fs.openSync(...args);
    },
    closeSync: (descriptor: number) => {
      free.descriptors += 1;
      fs.closeSync(descriptor);
    },
  };
});

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'descriptors-'));
  mkdirSync(join(root, 'pod1'));
  for (const file of ['memory.max', 'cpu.max']) writeFileSync(join(root, 'pod1', file), `${file}\n`);
});
afterEach(() => {
  free.descriptors = Infinity;
  rmSync(root, { recursive: true });
});

test('a process without a free descriptor closes the cgroup files that it keeps open to read another one', () => {
  const files = new CgroupFiles(root);
  expect(files.readNow('/pod1', 'memory.max')).toBe('memory.max');
  free.descriptors = 0;
  expect(files.readNow('/pod1', 'cpu.max')).toBe('cpu.max');
});

test('a process without a free descriptor closes the cgroup files that it keeps open to write one', () => {
  const files = new CgroupFiles(root);
  files.readNow('/pod1', 'memory.max');
  free.descriptors = 0;
  files.writeNow('/pod1', 'cpu.max', 'max');
  free.descriptors = Infinity;
  expect(files.readNow('/pod1', 'cpu.max')).toBe('max');
});
