import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { CgroupTree, readLoad } from '../../src/cgroups/tree.ts';
import { isCgroupVanished } from '../../src/cgroups/file.ts';

let root: string;
let tree: CgroupTree;
const put = (file: string, content: string): void => writeFileSync(join(root, 'pod1', file), content);

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'cgroup-load-'));
  mkdirSync(join(root, 'pod1'));
  tree = new CgroupTree(root);
});
afterEach(() => rmSync(root, { recursive: true }));

test('the load of a cgroup is read from its files', async () => {
  put('memory.current', '4096000\n');
  put('memory.stat', 'anon 1000\nfile 5000\nshmem 2000\n');
  put('memory.events', 'oom_kill 0\n');
  put('cpu.stat', 'usage_usec 1234567\nuser_usec 1000000\nsystem_usec 234567\n');
  put('memory.pressure', 'some avg10=1.50 avg60=0.70 avg300=0.10 total=12\nfull avg10=1.00 avg60=0.00 total=3\n');
  put('cpu.pressure', 'some avg10=100.00 avg60=9.00 avg300=2.00 total=9\n');
  await expect(readLoad(tree, '/pod1')).resolves.toEqual({
    unreclaimable: 3000,
    cpuTime: 1_234_567,
    memoryStalled: 1.5,
    cpuStalled: 100,
  });
});

test('a figure that the kernel does not have, or has in another form, is unknown', async () => {
  put('memory.current', '4096000\n');
  put('memory.stat', 'anon many\n');
  put('cpu.stat', 'nr_periods 0\n');
  put('memory.pressure', '\n');
  await expect(readLoad(tree, '/pod1')).resolves.toEqual({
    unreclaimable: undefined,
    cpuTime: undefined,
    memoryStalled: undefined,
    cpuStalled: undefined,
  });
});

test('the load of a removed cgroup is an error', async () => {
  await expect(readLoad(tree, '/pod2')).rejects.toSatisfy(isCgroupVanished);
});
