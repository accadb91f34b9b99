import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ReadWatches, watchReads } from '../../src/cgroups/read-watch.ts';
import { CgroupTree } from '../../src/cgroups/tree.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'read-watch-'));
  writeFileSync(join(folder, 'cpu.stat'), 'usage_usec 1\n');
});
afterEach(() => rmSync(folder, { recursive: true }));

test('KEP-1287: the watch of a pod reports a read of its file, but not an earlier read or a read of another file', async () => {
  const [file, other] = [join(folder, 'cpu.stat'), join(folder, 'memory.current')];
  writeFileSync(other, '1\n');
  readFileSync(file);
  const watch = await watchReads(file);
  const another = await watchReads(other);
  let isRead = false;
  void watch.whenRead.then(() => (isRead = true));
  readFileSync(other);
  await another.whenRead;
  await turn();
  expect(isRead).toBe(false);
  readFileSync(file);
  await watch.whenRead;
  expect(isRead).toBe(true);
});

test('the wait for a read ends when the file is removed', async () => {
  const watch = await watchReads(join(folder, 'cpu.stat'));
  rmSync(join(folder, 'cpu.stat'));
  await expect(watch.whenRead).resolves.toBeUndefined();
});

/** The inotify instances of this process. */
const instances = (): number =>
  readdirSync('/proc/self/fd').filter((fd) => linkOf(`/proc/self/fd/${fd}`) === 'anon_inode:inotify').length;

function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    // The descriptor of the folder itself.
    return '';
  }
}

/** The inotify watches of this process for these files. */
function watchesOf(...files: readonly string[]): number {
  const inodes = files.map((file) => `ino:${statSync(file).ino.toString(16)} `);
  const lines = readdirSync('/proc/self/fdinfo').flatMap((fd) => textOf(`/proc/self/fdinfo/${fd}`).split('\n'));
  return lines.filter((line) => line.startsWith('inotify ') && inodes.some((inode) => line.includes(inode))).length;
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

test('KEP-1287: all pods are watched through one inotify instance, and a closed watch is removed from it', async () => {
  const files = Array.from({ length: 200 }, (_, number) => join(folder, String(number)));
  for (const file of files) writeFileSync(file, '');
  (await watchReads(join(folder, 'cpu.stat'))).close();
  const before = instances();
  const all = await Promise.all(files.map((file) => watchReads(file)));
  expect([instances(), watchesOf(...files)]).toEqual([before, 200]);
  for (const watch of all) {
    watch.close();
    watch.close();
  }
  expect([instances(), watchesOf(...files)]).toEqual([before, 0]);
});

test('two watches of one file end independently', async () => {
  const file = join(folder, 'cpu.stat');
  const [one, other] = [await watchReads(file), await watchReads(file)];
  one.close();
  readFileSync(file);
  await other.whenRead;
  // A wait ignores reads that happened before it started.
  const another = await watchReads(join(folder, 'cpu.stat'));
  readFileSync(file);
  const later = await watchReads(file);
  await another.whenRead;
  let isRead = false;
  void later.whenRead.then(() => (isRead = true));
  await turn();
  expect(isRead).toBe(false);
  later.close();
  expect(watchesOf(file)).toBe(0);
});

test('KEP-1287: a pod beyond the limit of watches cannot be watched until another watch ends', async () => {
  const watches = new ReadWatches(1);
  const file = join(folder, 'cpu.stat');
  const first = await watches.watch(file);
  await expect(watches.watch(file)).rejects.toMatchObject({
    reason: 'CGROUP_UNAVAILABLE',
    message: `${file}: not watched: 1 files are`,
  });
  readFileSync(file);
  await first.whenRead;
  (await watches.watch(file)).close();
});

test('the wait for a read ends when the kernel drops events, because the read may be one of them', async () => {
  const queued = Number(readFileSync('/proc/sys/fs/inotify/max_queued_events', 'utf8'));
  const files = ['a', 'b', 'cpu.stat'].map((name) => join(folder, name));
  for (const file of files) writeFileSync(file, 'x');
  const watches = new ReadWatches();
  const [a = '', b = ''] = files;
  const all = await Promise.all(files.map((file) => watches.watch(file)));
  // Equal events in a row count once.
  for (let count = 0; count <= queued; count += 2) for (const file of [a, b]) readFileSync(file);
  await Promise.all(all.map(({ whenRead }) => whenRead));
  expect(watchesOf(...files)).toBe(0);
});

test('rejects the watch of a missing file with its name and the error', async () => {
  await expect(watchReads(join(folder, 'none'))).rejects.toMatchObject({
    reason: 'CGROUP_UNAVAILABLE',
    message: `${join(folder, 'none')}: inotify_add_watch: ENOENT`,
  });
});

test('a read of cgroup.procs counts as a measurement of the cgroup, but a read of cpu.stat or memory.current does not', async () => {
  for (const file of ['cgroup.procs', 'memory.current']) writeFileSync(join(folder, file), '');
  const watch = await new CgroupTree(folder).watchMeasuring('/');
  let isRead = false;
  void watch.whenRead.then(() => (isRead = true));
  const figures = await Promise.all(['cpu.stat', 'memory.current'].map((file) => watchReads(join(folder, file))));
  for (const file of ['cpu.stat', 'memory.current']) readFileSync(join(folder, file));
  await Promise.all(figures.map(({ whenRead }) => whenRead));
  expect(isRead).toBe(false);
  readFileSync(join(folder, 'cgroup.procs'));
  await expect(watch.whenRead).resolves.toBeUndefined();
});

test('rejects the watch of a removed cgroup', async () => {
  await expect(new CgroupTree(folder).watchMeasuring('/gone')).rejects.toMatchObject({ reason: 'CGROUP_UNAVAILABLE' });
});
