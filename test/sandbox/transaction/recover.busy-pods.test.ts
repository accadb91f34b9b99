import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { encode } from '../../../src/runtime/codec.ts';
import type { PodDescription } from '../../../src/runtime/description.ts';
import type { VolumeRecord } from '../../../src/sandbox/journal/record.ts';
import { recover } from '../../../src/sandbox/transaction/recover.ts';
import { eventually } from '../../support/fake-clock.ts';
import { interrupted } from '../../support/resize/interrupted.ts';
import { FakeRuntime, SANDBOX, containerId } from '../../support/fake-runtime.ts';
import { mi } from '../../support/quantities/mebibytes.ts';

const OTHER = 'b'.repeat(64);
const WITHIN = { timeout: 60_000 };

let runtime: FakeRuntime;
let other: PodDescription;
/** Lets the request that holds the lock of the first pod end. */
let endRequest: () => void;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(String(400 * MiB), [150 * MiB, 200 * MiB]);
  runtime.applyUpdates();
  runtime.writeCgroup('/kubepods/pod2', {
    'memory.max': String(400 * MiB),
    'cpu.max': 'max 100000',
    'cpu.weight': '39',
  });
  runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }, { id: OTHER }] }));
  const first = await pod();
  other = {
    ...first,
    sandboxId: OTHER,
    cgroupParent: '/kubepods/pod2',
    metadata: { ...first.metadata, name: 'db', uid: 'uid-2' },
  };
  runtime.node.registry.learnPod(other);
});
afterEach(() => {
  vi.useRealTimers();
  return runtime.close();
});

const { pod, begin, found } = interrupted(
  () => runtime,
  [
    { kind: 'pod-memory', from: mi(300), to: mi(400) },
    { kind: 'container', id: containerId(0), memory: { from: mi(100), to: mi(150) } },
  ],
);

/** Leaves a transaction of each pod that has to be rolled back. The record of the first pod is the older one. */
async function interruptBoth(): Promise<void> {
  await (await begin()).undoing();
  const steps = [{ kind: 'pod-memory', from: mi(300), to: mi(400) }] as const;
  await (await runtime.node.journal.begin(other, steps, { volumes: new Map() })).undoing();
}

/** Starts a request that holds the lock of the first pod. */
function holdFirstPod(): void {
  const { promise, resolve } = Promise.withResolvers<unknown>();
  endRequest = () => resolve(undefined);
  void runtime.node.lock.run('uid-1', () => promise);
}

const limitOfOther = (): number =>
  Number(readFileSync(join(runtime.cgroupRoot, 'kubepods/pod2/memory.max'), 'utf8')) / MiB;

test('a recovery skips a pod whose lock a request holds, and the next recovery recovers it', async () => {
  await interruptBoth();
  holdFirstPod();
  const recovered = recover(runtime.node);
  await expect.poll(limitOfOther, WITHIN).toBe(300);
  expect(await recovered).toBe(false);
  expect(found()).toEqual([400, 150, 200]);
  endRequest();
  expect(await recover(runtime.node)).toBe(true);
  expect(found()).toEqual([300, 100, 200]);
  expect(runtime.node.journal.unfinished()).toEqual([]);
});

test('a pod whose runtime does not answer does not delay the recovery of another pod', async () => {
  await interruptBoth();
  const answered = Promise.withResolvers<unknown>();
  runtime.wrapResponder('UpdateContainerResources', async (request, before) => {
    await answered.promise;
    return before(request);
  });
  // A recovery waits a limited time for the answer. No time passes here.
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  const recovered = recover(runtime.node);
  // Unlike expect.poll, this does not advance the fake time.
  await eventually(() => limitOfOther() === 300);
  expect(found()).toEqual([400, 150, 200]);
  answered.resolve(undefined);
  expect(await recovered).toBe(true);
  expect(found()).toEqual([300, 100, 200]);
});

test('the volumes of a pod whose lock a request holds are journalled by the next recovery', async () => {
  const volume: VolumeRecord = { policy: { kind: 'absolute', size: mi(64) }, source: 'asked', annotated: false };
  runtime.node.policies.restore(SANDBOX, new Map([['cache', volume]]));
  holdFirstPod();
  let isComplete: boolean | undefined;
  void recover(runtime.node).then((complete) => (isComplete = complete));
  await expect.poll(() => isComplete, WITHIN).toBe(false);
  endRequest();
  expect(await recover(runtime.node)).toBe(true);
  expect(runtime.node.journal.volumesOf(await pod())).toEqual(new Map([['cache', volume]]));
});
