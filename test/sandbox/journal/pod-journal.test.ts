import { fstatSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { PodJournal } from '../../../src/sandbox/journal/pod-journal.ts';
import { Journal } from '../../../src/sandbox/journal/store.ts';
import type { AdmittedRequestsOfPod } from '../../../src/sandbox/plan/resize-request.ts';
import { timerlessClock } from '../../support/fake-clock.ts';
import { containerId, FakeRuntime, SANDBOX } from '../../support/fake-runtime.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
});
afterEach(() => runtime.close());

const of = (megabytes: number) => ({ memory: bytes(megabytes * MiB), milliCpu: 100, kubelet: 'none' });

const written = (): unknown => {
  const { stateFolder } = runtime;
  const [name = ''] = readdirSync(stateFolder).filter((file) => file.endsWith('.json'));
  return JSON.parse(readFileSync(join(stateFolder, name), 'utf8'));
};

test('a deferred request stored while a transaction begins does not change its sandbox id', async () => {
  const { journal, registry } = runtime.node;
  const pod = (await registry.pod(SANDBOX))!;
  const step = { kind: 'pod-memory', from: bytes(300 * MiB), to: bytes(400 * MiB) } as const;
  const request = { version: 1, kind: 'of a test' };
  const [, open] = await Promise.all([
    journal.setResizes(pod.metadata.uid, [request]),
    journal.begin(pod, [step], { volumes: new Map() }),
  ]);
  expect(journal.unfinished()).toMatchObject([{ podUid: pod.metadata.uid, sandboxId: SANDBOX }]);
  expect(written()).toMatchObject({ sandboxId: SANDBOX, transaction: { steps: [step] }, resizes: [request] });
  await open.end('done', new Map());
  expect(written()).toMatchObject({ sandboxId: SANDBOX, resizes: [request] });
  await journal.setResizes(pod.metadata.uid, []);
  expect(readdirSync(runtime.stateFolder)).toEqual([]);
});

test('a transaction is reported as unfinished once its rollback has failed', async () => {
  const { journal, registry } = runtime.node;
  const pod = (await registry.pod(SANDBOX))!;
  const step = { kind: 'pod-memory', from: bytes(300 * MiB), to: bytes(400 * MiB) } as const;
  let left = 0;
  journal.onUnfinished(() => (left += 1));
  const opened = await journal.begin(pod, [step], { volumes: new Map() });
  await opened.undoing();
  expect(left).toBe(0);
  await opened.failed('the step cannot be rolled back');
  expect(left).toBe(1);
  await opened.end('undone', new Map());
  expect([left, journal.unfinished()]).toEqual([1, []]);
});

test('a transaction that has ended while the disk was broken is not rolled back with the next one', async () => {
  const { journal, registry } = runtime.node;
  const pod = (await registry.pod(SANDBOX))!;
  const raise = { kind: 'pod-memory', from: bytes(300 * MiB), to: bytes(400 * MiB) } as const;
  const lower = { kind: 'pod-memory', from: bytes(400 * MiB), to: bytes(350 * MiB) } as const;
  const opened = await journal.begin(pod, [raise], { volumes: new Map() });
  renameSync(runtime.stateFolder, `${runtime.stateFolder}-away`);
  writeFileSync(runtime.stateFolder, '');
  await expect(opened.end('done', new Map())).rejects.toMatchObject({ reason: 'JOURNAL_UNAVAILABLE' });
  rmSync(runtime.stateFolder);
  renameSync(`${runtime.stateFolder}-away`, runtime.stateFolder);
  expect(journal.unfinished()).toEqual([]);
  expect(written()).toMatchObject({ transaction: { steps: [raise] } });
  await journal.begin(pod, [lower], { volumes: new Map() });
  expect(written()).toMatchObject({ transaction: { steps: [lower], undoing: false } });
});

test('a transaction that ended while the disk was broken is removed from the disk once it works again', async () => {
  const { journal, registry } = runtime.node;
  const pod = (await registry.pod(SANDBOX))!;
  const step = { kind: 'pod-memory', from: bytes(300 * MiB), to: bytes(400 * MiB) } as const;
  const opened = await journal.begin(pod, [step], { volumes: new Map() });
  renameSync(runtime.stateFolder, `${runtime.stateFolder}-away`);
  writeFileSync(runtime.stateFolder, '');
  await expect(opened.end('done', new Map())).rejects.toMatchObject({ reason: 'JOURNAL_UNAVAILABLE' });
  rmSync(runtime.stateFolder);
  renameSync(`${runtime.stateFolder}-away`, runtime.stateFolder);
  expect(readdirSync(runtime.stateFolder)).not.toEqual([]);
  await (await runtime.journal).check();
  expect(readdirSync(runtime.stateFolder)).toEqual([]);
});

test('a transaction that cannot begin does not count as unfinished', async () => {
  const { journal, registry } = runtime.node;
  const pod = (await registry.pod(SANDBOX))!;
  const step = { kind: 'pod-memory', from: bytes(300 * MiB), to: bytes(400 * MiB) } as const;
  let left = 0;
  journal.onUnfinished(() => (left += 1));
  await journal.restored();
  renameSync(runtime.stateFolder, `${runtime.stateFolder}-away`);
  writeFileSync(runtime.stateFolder, '');
  await expect(journal.begin(pod, [step], { volumes: new Map() })).rejects.toMatchObject({
    reason: 'JOURNAL_UNAVAILABLE',
  });
  expect([left, journal.unfinished()]).toEqual([0, []]);
  rmSync(runtime.stateFolder);
  renameSync(`${runtime.stateFolder}-away`, runtime.stateFolder);
});

test('a transaction that did not begin because of a failed fsync is removed from the disk once it works again', async () => {
  const { journal, registry } = runtime.node;
  const pod = (await registry.pod(SANDBOX))!;
  const step = { kind: 'pod-memory', from: bytes(300 * MiB), to: bytes(400 * MiB) } as const;
  const request = { version: 1, kind: 'of a test' };
  await journal.setResizes(pod.metadata.uid, [request]);
  const folder = await open(runtime.stateFolder);
  const handle = Object.getPrototypeOf(folder) as FileHandle;
  await folder.close();
  // The fsync of the folder, after the rename.
  const sync = vi.spyOn(handle, 'sync').mockImplementation(function (this: FileHandle) {
    return fstatSync(this.fd).isDirectory() ? Promise.reject(new Error('EIO: i/o error, fsync')) : Promise.resolve();
  });
  try {
    await expect(journal.begin(pod, [step], { volumes: new Map() })).rejects.toThrow('EIO');
    // The replacement record may already be on the disk.
    await expect.poll(() => sync.mock.calls.length, LONG_WAIT).toBeGreaterThan(3);
  } finally {
    sync.mockRestore();
  }
  await (await runtime.journal).check();
  expect(written()).toMatchObject({ resizes: [request] });
  expect(written()).not.toHaveProperty('transaction');
});

test('only a record that is valid after a reboot, or replaces one that is, waits for the disk', async () => {
  const { journal, registry } = runtime.node;
  const pod = (await registry.pod(SANDBOX))!;
  const step = { kind: 'pod-memory', from: bytes(300 * MiB), to: bytes(400 * MiB) } as const;
  const cache = {
    policy: { kind: 'absolute', size: bytes(MiB) },
    source: 'asked',
    annotated: false,
  } as const;
  await journal.restored();
  const folder = await open(runtime.stateFolder);
  const sync = vi.spyOn(Object.getPrototypeOf(folder) as FileHandle, 'sync');
  await folder.close();
  const synced = async (change: () => Promise<unknown>): Promise<boolean> => {
    sync.mockClear();
    await change();
    return sync.mock.calls.length > 0;
  };
  try {
    const found: boolean[] = [];
    const first = journal.begin(pod, [step], { volumes: new Map() });
    found.push(await synced(() => first));
    expect(written()).toMatchObject({ transaction: { steps: [step] } });
    found.push(await synced(async () => (await first).end('done', new Map())));
    found.push(await synced(() => journal.setVolumes(pod, new Map([['cache', cache]]))));
    const second = journal.begin(pod, [step], { volumes: new Map([['cache', cache]]) });
    found.push(await synced(() => second));
    found.push(await synced(async () => (await second).end('done', new Map())));
    expect(found).toEqual([false, false, true, true, true]);
    expect(readdirSync(runtime.stateFolder)).toEqual([]);
  } finally {
    sync.mockRestore();
  }
});

test('an update of a transaction from an earlier process counts as unanswered, and is dropped with its pod', async () => {
  const { journal, registry } = runtime.node;
  const pod = (await registry.pod(SANDBOX))!;
  const memory = { from: bytes(100 * MiB), to: bytes(200 * MiB) };
  const update = { kind: 'container', id: containerId(0), memory } as const;
  await journal.begin(pod, [update], { volumes: new Map() });
  expect(journal.unanswered.of(SANDBOX)).toEqual([]);
  const store = await Journal.open(runtime.stateFolder, { clock: timerlessClock });
  const restarted = new PodJournal(Promise.resolve(store));
  await restarted.restored();
  expect(restarted.unanswered.of(SANDBOX)).toEqual([update]);
  await restarted.forget(pod);
  expect(restarted.unanswered.of(SANDBOX)).toEqual([]);
  await store.close();
});

test('a transaction that repeats the steps of an unfinished one does not record them twice', async () => {
  const { journal, registry } = runtime.node;
  const pod = (await registry.pod(SANDBOX))!;
  const step = (to: number) => ({ kind: 'pod-memory', from: bytes(300 * MiB), to: bytes(to * MiB) }) as const;
  for (const to of [400, 400, 500, 400, 500])
    await (await journal.begin(pod, [step(to)], { volumes: new Map() })).failed('left');
  expect(journal.transactionOf(pod)?.steps).toEqual([step(400), step(500)]);
});

test('KEP-1287: the requests of a resize are journalled with it, and a rollback restores the earlier ones', async () => {
  const { journal, registry } = runtime.node;
  const pod = (await registry.pod(SANDBOX))!;
  const { uid } = pod.metadata;
  const step = { kind: 'pod-memory', from: bytes(300 * MiB), to: bytes(400 * MiB) } as const;
  const begin = (megabytes: number, before: AdmittedRequestsOfPod | null) =>
    journal.begin(pod, [step], { volumes: new Map(), admitted: { ...of(megabytes), before } });
  const readAgain = async () => {
    const store = await Journal.open(runtime.stateFolder, { clock: timerlessClock });
    const again = new PodJournal(Promise.resolve(store));
    await again.restored();
    await store.close();
    return again.admitted().get(uid);
  };

  const first = await begin(400, null);
  expect(await readAgain()).toEqual({ ...of(400), before: null });
  await first.end('undone', new Map());
  expect(await readAgain()).toBeUndefined();
  const second = await begin(400, null);
  await second.end('done', new Map());
  expect(await readAgain()).toEqual(of(400));
  const third = await begin(500, of(400));
  expect(await readAgain()).toEqual({ ...of(500), before: of(400) });
  await third.end('undone', new Map());
  expect(await readAgain()).toEqual(of(400));
  await journal.setResizes(uid, [{ version: 1, kind: 'of a test' }]);
  await journal.setResizes(uid, []);
  expect(await readAgain()).toEqual(of(400));
  await journal.forget(pod);
  expect(await readAgain()).toBeUndefined();
});

test.each([
  ['rolled back, they stay until the recovery', 'undone', { ...of(400), before: of(300) }],
  ['done, the earlier ones count again', 'done', of(300)],
] as const)(
  'KEP-1287: requests of a resize whose rollback has failed: if another update is %s',
  async (_, how, expected) => {
    const { journal, registry } = runtime.node;
    const pod = (await registry.pod(SANDBOX))!;
    const step = { kind: 'pod-memory', from: bytes(300 * MiB), to: bytes(400 * MiB) } as const;
    const volumes = new Map();
    const failed = await journal.begin(pod, [step], { volumes, admitted: { ...of(400), before: of(300) } });
    await failed.failed('the step cannot be rolled back');
    const update = await journal.begin(pod, [{ ...step, to: bytes(350 * MiB) }], { volumes });
    await update.end(how, volumes);
    expect(journal.admitted().get(pod.metadata.uid)).toEqual(expected);
  },
);

test('a shim that does not know the entry of admitted requests keeps it with the deferred requests', async () => {
  const { journal, registry } = runtime.node;
  const pod = (await registry.pod(SANDBOX))!;
  const admitted = { memory: bytes(MiB), milliCpu: 100, kubelet: 'none', before: null };
  await journal.begin(pod, [], { volumes: new Map(), admitted });
  expect(written()).toMatchObject({ version: 4, resizes: [{ version: 1, kind: 'admitted', ...admitted }] });
});
