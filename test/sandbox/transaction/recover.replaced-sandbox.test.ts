import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { markedHigh } from '../../../src/cgroups/memory-high.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import { recover } from '../../../src/sandbox/transaction/recover.ts';
import type { VolumeRecord } from '../../../src/sandbox/journal/record.ts';
import { Registry } from '../../../src/sandbox/pods/registry.ts';
import { interrupted } from '../../support/resize/interrupted.ts';
import { FakeRuntime, RuntimeFailure, SANDBOX, containerId, podConfig } from '../../support/fake-runtime.ts';
import { mi } from '../../support/quantities/mebibytes.ts';

const NEXT = 'b'.repeat(64);

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
  runtime.applyUpdates();
});
afterEach(() => runtime.close());

const { pod, begin, has, found, journal } = interrupted(
  () => runtime,
  [
    { kind: 'pod-memory', from: mi(300), to: mi(400) },
    { kind: 'container', id: containerId(0), memory: { from: mi(100), to: mi(150) } },
  ],
);

/** The runtime has removed the sandbox that the shim knows, and has another one of the pod. */
function replaceSandbox(): void {
  runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: NEXT }] }));
  runtime.on('PodSandboxStatus', (request) => {
    if (decode('PodSandboxStatusRequest', request).pod_sandbox_id !== NEXT)
      throw new RuntimeFailure(status.NOT_FOUND, 'no such sandbox');
    const config = { ...podConfig, metadata: { ...podConfig.metadata, attempt: 1 } };
    return encode('PodSandboxStatusResponse', { status: { id: NEXT }, info: { info: JSON.stringify({ config }) } });
  });
}

/** Recovers as a shim that has just started, whose registry is empty. */
const recoverAtStart = (): Promise<boolean> => recover({ ...runtime.node, registry: new Registry(runtime.backend) });

describe.each([
  ['was replaced while the shim was away', recoverAtStart],
  ['was replaced while the shim had no connection', (): Promise<boolean> => recover(runtime.node)],
])('a pod whose sandbox %s', (_when, recoverPods) => {
  test('a pod in a new sandbox gets its memory.high from before a hold, and keeps its deferred requests', async () => {
    await runtime.node.journal.setHolds(await pod(), [{ cgroup: '/kubepods/pod1', memoryHigh: 'max' }]);
    await runtime.node.journal.setResizes('uid-1', ['a request']);
    runtime.writeFile('/kubepods/pod1', 'memory.high', String(markedHigh(mi(100))));
    replaceSandbox();
    expect(await recoverPods()).toBe(true);
    expect(runtime.read('memory.high')).toBe('max');
    expect(runtime.node.journal.identities()).toMatchObject([
      { podUid: 'uid-1', sandboxId: NEXT, resizes: ['a request'] },
    ]);
    expect(runtime.node.journal.unfinished()).toEqual([]);
  });

  test('a pod with a state folder and no sandbox keeps its record, and is recovered in its next sandbox', async () => {
    const volume: VolumeRecord = { policy: { kind: 'absolute', size: mi(64) }, source: 'asked', annotated: false };
    const kept = { resizes: ['a request'], volumes: new Map([['cache', volume]]) };
    runtime.node.policies.restore(SANDBOX, kept.volumes);
    await (await begin()).undoing();
    await runtime.node.journal.setResizes('uid-1', kept.resizes);
    has(400);
    mkdirSync(join(runtime.kubeletRoot, 'pods/uid-1'), { recursive: true });
    replaceSandbox();
    runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', {}));
    expect(await recoverPods()).toBe(true);
    expect(runtime.node.journal.identities()).toMatchObject([{ ...kept, transaction: { undoing: true } }]);
    const recoverable = vi.fn();
    runtime.node.journal.onUnfinished(recoverable);
    replaceSandbox();
    expect(await recover(runtime.node)).toBe(true);
    expect(recoverable).toHaveBeenCalled();
    expect(runtime.read('memory.max')).toBe(String(300 * MiB));
    expect(runtime.node.journal.identities()).toMatchObject([{ ...kept, sandboxId: NEXT }]);
    expect(runtime.node.journal.unfinished()).toEqual([]);
  });

  test('a pod in a new sandbox gets its pod limit from before an interrupted rollback', async () => {
    await (await begin()).undoing();
    has(400);
    runtime.removeCgroup(`/kubepods/pod1/${containerId(0)}`);
    runtime.on('ContainerStatus', () => {
      throw new RuntimeFailure(status.NOT_FOUND, 'no such container');
    });
    replaceSandbox();
    await recoverPods();
    expect(runtime.read('memory.max')).toBe(String(300 * MiB));
    expect(journal()).toEqual([]);
  });
});

test('a record stays while the runtime cannot list its pods', async () => {
  await begin();
  has(400);
  replaceSandbox();
  runtime.on('ListPodSandbox');
  expect(await recoverAtStart()).toBe(false);
  expect([found()[0], journal().length]).toEqual([400, 1]);
});
