import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { createCounters } from '../../src/core/observe/counters.ts';
import { type LogFields, noLog } from '../../src/core/observe/interfaces.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { KubeletFiles } from '../../src/kubelet/checkpoints.ts';
import { checkpointText, type WrittenPod, withMemory } from '../support/checkpoint-text.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { LONG_WAIT } from '../support/long-wait.ts';

let parent: string;
let root: string;
let files: KubeletFiles;
let counters: ReturnType<typeof createCounters>;
let changes: number;
let lines: (LogFields & { readonly msg: string })[];
beforeEach(() => {
  parent = mkdtempSync(join(tmpdir(), 'checkpoints-'));
  root = join(parent, 'lib/kubelet');
  counters = createCounters();
  changes = 0;
  lines = [];
  const record = (fields: LogFields, msg: string): void => void lines.push({ ...fields, msg });
  files = new KubeletFiles({
    kubeletRoot: root,
    clock: systemClock,
    log: { ...noLog, info: record, warn: record },
    counters,
  });
  files.onChange(() => void (changes += 1));
});
afterEach(() => {
  files.close();
  rmSync(parent, { recursive: true });
});

type Name = 'allocated_pods_state' | 'actuated_pods_state';

/** Replaces a file as kubelet does: writes a temporary file and renames it. */
function replace(text: string, name: Name = 'allocated_pods_state'): void {
  writeFileSync(join(root, '.1234567'), text, { mode: 0o600 });
  renameSync(join(root, '.1234567'), join(root, name));
}
const write = (pods: Readonly<Record<string, WrittenPod>>, name?: Name): void => replace(checkpointText(pods), name);
const makeRoot = (): void => void mkdirSync(root, { recursive: true });
/** Returns the memory limit of container a that a call to the shim uses. */
function memory(): number | undefined {
  files.refresh();
  return files.allocated('u')?.containers.get('a')?.memory;
}
/** Waits until the number of reported changes is `count`. */
async function changed(count: number): Promise<void> {
  await expect.poll(() => changes, { ...LONG_WAIT, interval: 5 }).toBe(count);
}

test('without checkpoint files nothing is known, and nothing is logged', () => {
  makeRoot();
  files.begin();
  expect(files.allocated('u')).toBeUndefined();
  expect(files.actuated('u')).toBeUndefined();
  expect([changes, lines, files.isPresent, counters.snapshot().foresight]).toEqual([0, [], false, {}]);
});

test('both checkpoint files are read at the start, with one change reported', async () => {
  makeRoot();
  write({ u: withMemory({ a: '64Mi' }) });
  write({ u: withMemory({ a: '128Mi' }) }, 'actuated_pods_state');
  files.begin();
  expect(changes).toBe(1);
  expect([memory(), files.actuated('u')?.containers.get('a')?.memory]).toEqual([64 * MiB, 128 * MiB]);
  expect(files.isPresent).toBe(true);
  await delay(10);
  expect(changes).toBe(1);
});

test('a replaced checkpoint is reported once, and a caller reads it at once', async () => {
  makeRoot();
  files.begin();
  write({ u: withMemory({ a: '64Mi' }) });
  expect(memory()).toBe(64 * MiB);
  await changed(1);
  write({ u: withMemory({ a: '32Mi' }) });
  await changed(2);
  expect(memory()).toBe(32 * MiB);
  writeFileSync(join(root, 'cpu_manager_state'), 'x');
  await delay(120);
  expect(changes).toBe(2);
});

test('two checkpoints are read in a turn each, and reported once', async () => {
  const clock = new FakeClock();
  files.close();
  files = new KubeletFiles({ kubeletRoot: root, clock, log: noLog, counters });
  files.onChange(() => void (changes += 1));
  makeRoot();
  files.begin();
  write({ u: withMemory({ a: '64Mi' }) });
  write({ u: withMemory({ a: '32Mi' }) }, 'actuated_pods_state');
  await expect.poll(() => clock.next, { ...LONG_WAIT, interval: 5 }).toBeDefined();
  const known = () => [files.allocated('u'), files.actuated('u')].map((entry) => entry?.containers.get('a')?.memory);
  clock.pass(50);
  expect([known(), changes]).toEqual([[64 * MiB, undefined], 0]);
  clock.pass(0);
  expect([known(), changes]).toEqual([[64 * MiB, 32 * MiB], 0]);
  clock.pass(0);
  expect([known(), changes]).toEqual([[64 * MiB, 32 * MiB], 1]);
});

test('a call between two event loop turns reads both checkpoints, and the listener is called once', async () => {
  const clock = new FakeClock();
  files.close();
  files = new KubeletFiles({ kubeletRoot: root, clock, log: noLog, counters });
  files.onChange(() => void (changes += 1));
  makeRoot();
  files.begin();
  write({ u: withMemory({ a: '64Mi' }) });
  write({ u: withMemory({ a: '32Mi' }) }, 'actuated_pods_state');
  await expect.poll(() => clock.next, { ...LONG_WAIT, interval: 5 }).toBeDefined();
  clock.pass(50);
  expect(memory()).toBe(64 * MiB);
  expect(files.actuated('u')?.containers.get('a')?.memory).toBe(32 * MiB);
  expect(changes).toBe(0);
  for (let turn = 0; turn < 4; turn += 1) clock.pass(0);
  expect(changes).toBe(1);
});

test('the entry of a pod stays the same object until its content changes', () => {
  makeRoot();
  write({ u: withMemory({ a: '64Mi' }), v: withMemory({ a: '64Mi' }) });
  files.begin();
  const [u, v] = [files.allocated('u'), files.allocated('v')];
  write({ u: withMemory({ a: '32Mi' }), v: withMemory({ a: '64Mi' }) });
  expect(memory()).toBe(32 * MiB);
  expect(files.allocated('u')).not.toBe(u);
  expect([v === undefined, files.allocated('v') === v]).toEqual([false, true]);
});

test('checkpoints with equal content share their entries until one of them changes', () => {
  makeRoot();
  files.begin();
  const same = { u: withMemory({ a: '64Mi' }), v: withMemory({ a: '1Gi' }) };
  write(same);
  write(same, 'actuated_pods_state');
  files.refresh();
  expect(files.allocated('v')?.containers.get('a')?.memory).toBe(1024 * MiB);
  // The content is parsed once and stored once in memory.
  expect(files.actuated('v')).toBe(files.allocated('v'));
  write({ ...same, v: withMemory({ a: '2Gi' }) });
  files.refresh();
  const memoryOf = (entry = files.allocated('v')): number | undefined => entry?.containers.get('a')?.memory;
  expect([memoryOf(), memoryOf(files.actuated('v'))]).toEqual([2048 * MiB, 1024 * MiB]);
});

test('content that is not a checkpoint is reported for each file that has it', () => {
  makeRoot();
  files.begin();
  replace('{}');
  replace('{}', 'actuated_pods_state');
  files.refresh();
  expect(lines.map(({ file, error }) => [file, error])).toEqual([
    ['allocated_pods_state', 'it has no string "data"'],
    ['actuated_pods_state', 'it has no string "data"'],
  ]);
});

test('changes are reported when the folder is created, removed and created again, and when a file is removed', async () => {
  files.begin();
  makeRoot();
  write({ u: withMemory({ a: '64Mi' }) });
  await changed(1);
  expect(memory()).toBe(64 * MiB);
  rmSync(join(root, 'allocated_pods_state'));
  await changed(2);
  expect(memory()).toBeUndefined();
  expect(files.isPresent).toBe(false);
  rmSync(root, { recursive: true });
  await delay(120);
  makeRoot();
  write({ u: withMemory({ a: '16Mi' }) });
  await changed(3);
  renameSync(root, `${root}-old`);
  await changed(4);
  makeRoot();
  write({ u: withMemory({ a: '8Mi' }) });
  await changed(5);
  expect(memory()).toBe(8 * MiB);
  expect(lines).toEqual([]);
});

test('an unknown checkpoint counts as absent, is counted each time, and is logged once, until a checkpoint is readable again', async () => {
  makeRoot();
  write({ u: withMemory({ a: '64Mi' }) });
  files.begin();
  for (const [index, text] of ['{"data":', '[]', ''].entries()) {
    replace(text);
    await changed(2 + index);
    expect(memory()).toBeUndefined();
  }
  write({ u: withMemory({ a: '32Mi' }) });
  await changed(5);
  expect(memory()).toBe(32 * MiB);
  expect(lines).toEqual([
    expect.objectContaining({ file: 'allocated_pods_state', msg: 'kubelet checkpoint not understood' }),
    { file: 'allocated_pods_state', msg: 'kubelet checkpoint readable again' },
  ]);
  expect(counters.snapshot().foresight).toEqual({ unreadable: 3 });
});

test('an unreadable checkpoint does not release resource requests: the pods read last still count until the file is removed', async () => {
  makeRoot();
  write({ u: withMemory({ a: '64Mi' }) });
  files.begin();
  const entry = files.allocated('u');
  replace('{');
  await changed(2);
  expect(files.allocated('u')).toBeUndefined();
  expect([...files.allocatedPods()]).toEqual([['u', entry]]);
  write({ u: withMemory({ a: '64Mi' }), v: withMemory({ a: '32Mi' }) });
  await changed(3);
  expect([...files.allocatedPods().keys()]).toEqual(['u', 'v']);
  expect(files.allocatedPods().get('u')).toBe(entry);
  rmSync(join(root, 'allocated_pods_state'));
  await changed(4);
  expect(files.allocatedPods().size).toBe(0);
});

test('KEP-6030: the volumes that kubelet resizes are those that it has admitted last, also while a checkpoint is unreadable', async () => {
  makeRoot();
  const pod = (...volumes: string[]): WrittenPod => ({
    ...withMemory({ a: '64Mi' }),
    EmptyDirVolumeLimits: Object.fromEntries(volumes.map((name) => [name, '32Mi'])),
  });
  // kubelet has been restarted without the feature gate: the actuated state keeps the volumes until the pod is deleted.
  write({ u: pod() });
  write({ u: pod('cache'), v: pod('cache') }, 'actuated_pods_state');
  files.begin();
  const named = (): readonly string[] => ['cache', 'tmp'].filter((name) => files.resizesVolume('u', name));
  expect([named(), files.resizesVolume('v', 'cache'), files.resizesVolume('w', 'cache')]).toEqual([[], true, false]);
  write({ u: pod('tmp') });
  await changed(2);
  expect(named()).toEqual(['tmp']);
  replace('{');
  await changed(3);
  expect(named()).toEqual(['tmp']);
  write({ u: { ...pod(), EmptyDirVolumeLimits: '32Mi' as never } });
  await expect.poll(named, LONG_WAIT).toEqual(['cache', 'tmp']);
});

test('an unknown part of a checkpoint is logged, and the other pods are known', () => {
  makeRoot();
  replace(JSON.stringify({ data: JSON.stringify({ entries: { u: withMemory({ a: '64Mi' }), v: 1 } }) }));
  files.begin();
  expect(memory()).toBe(64 * MiB);
  expect(lines).toMatchObject([{ error: '1 values of an unknown shape' }]);
});

test('after hundreds of replacements the newest checkpoint is known, with a bounded number of reads', async () => {
  makeRoot();
  files.begin();
  const start = performance.now();
  // As fast as possible, with a pause for other tasks every ten files.
  for (let n = 1; n <= 500; n += 1) {
    write({ u: withMemory({ a: String(n) }) });
    if (n % 10 === 0) await delay(1);
  }
  await expect.poll(memory, LONG_WAIT).toBe(500);
  await delay(120);
  expect(changes).toBeGreaterThan(1);
  expect(changes).toBeLessThan(2 + (performance.now() - start) / 50);
});

describe('reads of checkpoints that have to wait', () => {
  let clock: FakeClock;
  /** Replaces the files until the read time is used up: a caller misses the last change, and has to wait. */
  function useUp(): void {
    clock = new FakeClock();
    files.close();
    files = new KubeletFiles({ kubeletRoot: root, clock, log: noLog, counters });
    files.onChange(() => void (changes += 1));
    makeRoot();
    files.begin();
    const containers = Object.fromEntries(Array.from({ length: 20 }, (_, n) => [`container-${n}`, '64Mi']));
    const pods = Object.fromEntries(Array.from({ length: 1000 }, (_, n) => [`pod-${n}`, withMemory(containers)]));
    for (let n = 1, isKnown = true; isKnown; n += 1) {
      write({ ...pods, u: withMemory({ a: `${n}Mi` }) });
      const reading = files.refreshed();
      isKnown = files.allocated('u')?.containers.get('a')?.memory === n * MiB;
      expect(reading === undefined).toBe(isKnown);
    }
  }

  test('while no read is allowed, a caller that waits finds the new checkpoint at the next allowed read', async () => {
    useUp();
    write({ u: withMemory({ a: '7777Mi' }) });
    let isRead = false;
    const reading = files.refreshed()?.then(() => (isRead = true));
    const found = (): unknown => files.allocated('u')?.containers.get('a')?.memory;
    const start = clock.now();
    for (; found() !== 7777 * MiB; clock.pass(clock.next ?? 0)) {
      await delay(1);
      expect(isRead).toBe(false);
    }
    // The other file has a separate budget.
    clock.pass(0);
    await reading;
    expect(clock.now() - start).toBeLessThanOrEqual(4010);
  });

  test('while no read is allowed, a scheduled read waits too, and earlier changes are reported immediately', () => {
    useUp();
    const before = changes;
    write({ u: withMemory({ a: '7777Mi' }) });
    clock.pass(0);
    expect(files.allocated('u')?.containers.get('a')?.memory).not.toBe(7777 * MiB);
    expect(changes).toBe(before + 1);
    clock.pass(4010);
    expect(files.allocated('u')?.containers.get('a')?.memory).toBe(7777 * MiB);
  });

  test('while no read is allowed, a caller does not wait if the files have not changed since they were read', () => {
    useUp();
    rmSync(root, { recursive: true });
    clock.pass(10_000);
    expect(memory()).toBeUndefined();
    expect(files.refreshed()).toBeUndefined();
    files.close();
    expect(files.refreshed()).toBeUndefined();
  });

  test('while no read is allowed, a caller that waits is released on close', async () => {
    useUp();
    const reading = files.refreshed();
    files.close();
    await expect(reading).resolves.toBeUndefined();
    expect(reading).toBeDefined();
  });
});

test('no change of a checkpoint is reported after close', async () => {
  makeRoot();
  files.begin();
  files.close();
  write({ u: withMemory({ a: '64Mi' }) });
  await delay(120);
  expect([changes, memory()]).toEqual([0, undefined]);
});
