import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { bytes, microseconds } from '../../../src/core/quantities/numbers.ts';
import { milliCpuToShares } from '../../../src/kubelet/formulas.ts';
import type { EntryLimits, PodEntry } from '../../../src/kubelet/checkpoint.ts';
import type { DesiredPod } from '../../../src/sandbox/plan/resize-request.ts';
import { resizePod } from '../../../src/sandbox/operations/resize-pod.ts';
import type { PodSpec } from '../../../src/sandbox/pods/pod-spec.ts';
import { type FakeRuntime, SANDBOX, containerId } from '../../support/fake-runtime.ts';
import { ResizedPod } from '../../support/resize/resized-pod.ts';
import { mi } from '../../support/quantities/mebibytes.ts';

/** The requests of a pod against the node's room for it. The shim's own CPUs and limits do not count. */

const cpus = (count: number) => ({ quota: microseconds(count * 100_000), period: microseconds(100_000) });

let runtime: FakeRuntime;
beforeEach(async () => {
  const web = await ResizedPod.start();
  web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
  ({ runtime } = web);
  // More CPUs than any machine that runs this test allows it.
  runtime.makeNode(1000 * MiB, 4096);
});
afterEach(() => runtime.close());

interface Wanted {
  readonly memory?: number;
  readonly cpu?: number;
  readonly pod?: string;
}

/** A resize of c0 to these requests, with limits far above them and above the node. */
const requesting = ({ memory, cpu }: Wanted): DesiredPod => ({
  pod: {},
  containers: new Map([
    ['c0', { memory: bytes(2 ** 42), cpu: cpus(10_000), ...(cpu !== undefined && { shares: milliCpuToShares(cpu) }) }],
  ]),
  volumes: new Map(),
  memoryRequests: { containers: memory === undefined ? {} : { c0: mi(memory) } },
});
const resize = (wanted: DesiredPod, dryRun = false) =>
  resizePod(runtime.node, SANDBOX, wanted, { dryRun, deadline: performance.now() + 60_000 });
const request = (wanted: Wanted) => resize(requesting(wanted));

const entry = (containers: Readonly<Record<string, EntryLimits>>, pod?: EntryLimits): PodEntry => ({
  containers: new Map(Object.keys(containers).map((name) => [name, {}])),
  pod: undefined,
  requests: { containers: new Map(Object.entries(containers)), pod },
  isComplete: true,
});

describe('A5: infeasible requests', () => {
  test('A5: limits above the node are allowed, and so are requests for more CPUs than the shim itself may use', async () => {
    await request({ memory: 900, cpu: 200_000 });
    expect(runtime.limitOf(0)).toBe(2 ** 42);
    expect(runtime.read(`${containerId(0)}/cpu.max`)).toBe('1000000000 100000');
  });

  test('A5: a request for more memory or CPU than the node has is rejected as infeasible', async () => {
    runtime.makeNode(1000 * MiB, 200);
    await expect(request({ memory: 1001 })).rejects.toMatchObject({
      code: 9,
      reason: 'EXCEEDS_NODE',
      message: 'pod default/web: a memory request of 1001Mi is more than 1000Mi: the node has no more',
    });
    await expect(request({ cpu: 200_001 })).rejects.toMatchObject({
      code: 9,
      reason: 'EXCEEDS_NODE',
      message: 'pod default/web: a CPU request of 200001m is more than 200: the node has no more',
    });
    expect(runtime.limitOf(0)).toBe(100 * MiB);
    await request({ memory: 1000, cpu: 200_000 });
  });

  test('A5: the allocatable of the Node counts instead of the size of the node', async () => {
    runtime.nodeAllocatable = { memory: mi(800), milliCpu: 2000 };
    await expect(request({ memory: 801 })).rejects.toMatchObject({
      reason: 'EXCEEDS_NODE',
      message: expect.stringContaining("more than 800Mi: the node's allocatable") as string,
    });
    await expect(request({ cpu: 2001 })).rejects.toMatchObject({ context: { asked: '2001m', found: '2' } });
    await request({ memory: 800, cpu: 2000 });
  });

  test('A5: a limit of the kubepods cgroup counts if it is below the size of the node', async () => {
    runtime.writeCgroup('/kubepods', { 'memory.max': String(500 * MiB), 'cpu.max': '300000 100000' });
    const wanted = requesting({ memory: 501 });
    const limits = { memory: mi(300) };
    const within = { ...wanted, containers: new Map(['c0', 'c1'].map((name) => [name, limits])) };
    const both = { containers: { c0: mi(300), c1: mi(201) } };
    await expect(resize({ ...within, memoryRequests: both })).rejects.toMatchObject({
      reason: 'EXCEEDS_NODE',
      message: expect.stringContaining('501Mi is more than 500Mi: cgroup /kubepods allows no more') as string,
    });
    await expect(
      resize({ ...requesting({}), containers: new Map([['c0', { cpu: cpus(4), shares: milliCpuToShares(3001) }]]) }),
    ).rejects.toMatchObject({ reason: 'EXCEEDS_NODE', context: { found: '3' } });
  });

  test('the requests of the other containers of the pod count with the values that kubelet has admitted', async () => {
    runtime.allocated.set('uid-1', entry({ c0: { memory: mi(100) }, c1: { memory: mi(500) } }));
    await request({ memory: 500 });
    await expect(request({ memory: 501 })).rejects.toMatchObject({
      reason: 'EXCEEDS_NODE',
      context: { asked: '1001Mi' },
    });
  });

  test('the requests of the other containers of the pod count with the values of an earlier resize', async () => {
    const earlierMemoryRequests = { containers: { c1: mi(500) } };
    await expect(resize({ ...requesting({ memory: 501 }), earlierMemoryRequests })).rejects.toMatchObject({
      reason: 'EXCEEDS_NODE',
    });
  });

  test('a request that does not rise fits on a node that is too small for the pod', async () => {
    runtime.allocated.set('uid-1', entry({ c0: { memory: mi(900) }, c1: { memory: mi(500) } }));
    await request({ memory: 600, cpu: 1000 });
    expect(runtime.limitOf(0)).toBe(2 ** 42);
  });

  test('the overhead of the pod counts toward its requests', async () => {
    const metadata = { name: 'web', uid: 'uid-1', namespace: 'default' };
    const linux = { cgroup_parent: '/kubepods/pod1', overhead: { memory_limit_in_bytes: 200 * MiB } };
    runtime.describePod({ config: { metadata, annotations: {}, linux } });
    await expect(request({ memory: 801 })).rejects.toMatchObject({ reason: 'EXCEEDS_NODE' });
    await request({ memory: 800 });
  });
});

describe('A5: requests that do not fit next to the other pods', () => {
  // kubelet creates the cgroup of a pod before its sandbox.
  beforeEach(() => runtime.writeCgroup('/kubepods/burstable/poduid-2', { 'memory.max': 'max' }));

  test('an evicted pod requests nothing, although kubelet keeps its entry', async () => {
    runtime.allocated.set('uid-3', entry({ app: { memory: mi(900) } }));
    await request({ memory: 400 });
    runtime.writeCgroup('/kubepods/poduid-3', { 'memory.max': 'max' });
    await expect(request({ memory: 401 })).rejects.toMatchObject({ reason: 'NODE_FULL' });
  });

  test('A5: a request that does not fit next to the other pods is deferred with the free amount', async () => {
    runtime.allocated.set('uid-2', entry({ app: { memory: mi(300), milliCpu: 1000 }, proxy: { memory: mi(100) } }));
    await expect(request({ memory: 601 })).rejects.toMatchObject({
      code: 9,
      reason: 'NODE_FULL',
      message:
        'pod default/web: a memory request of 601Mi does not fit now: other pods have requested 400Mi of 1000Mi (the node has no more), 600Mi is free',
      context: { pod: 'uid-1', asked: '601Mi', found: '600Mi' },
    });
    await request({ memory: 600 });
    runtime.allocated.delete('uid-2');
    await request({ memory: 601 });
  });

  test('CPU requests of other pods count too, and pod-level requests replace the sum of the containers', async () => {
    runtime.nodeAllocatable = { milliCpu: 4000 };
    runtime.allocated.set('uid-2', entry({ app: { milliCpu: 1000 } }, { milliCpu: 3000 }));
    await expect(request({ cpu: 1001 })).rejects.toMatchObject({ reason: 'NODE_FULL', context: { found: '1' } });
    await request({ cpu: 1000 });
  });

  test('a pod that has ended requests nothing, but a pod without a sandbox counts with its requests', async () => {
    runtime.allocated.set('uid-2', entry({ app: { memory: mi(700) } }));
    await expect(request({ memory: 400 })).rejects.toMatchObject({ reason: 'NODE_FULL' });
    const pod = (await runtime.node.registry.pod(SANDBOX))!;
    runtime.node.registry.learnPod({
      ...pod,
      sandboxId: 'b'.repeat(64),
      metadata: { ...pod.metadata, uid: 'uid-2' },
      cgroupParent: '/kubepods/pod2',
    });
    await request({ memory: 400 });
    runtime.writeCgroup('/kubepods/pod2', { 'memory.max': 'max', 'cpu.max': 'max 100000' });
    await expect(request({ memory: 401 })).rejects.toMatchObject({ reason: 'NODE_FULL' });
  });

  test('an init container of another pod counts, by the spec, only as far as it exceeds the app containers', async () => {
    runtime.allocated.set('uid-2', entry({ init: { memory: mi(450) }, app: { memory: mi(400) } }));
    await expect(request({ memory: 400 })).rejects.toMatchObject({ reason: 'NODE_FULL' });
    const pod = (await runtime.node.registry.pod(SANDBOX))!;
    const metadata = { ...pod.metadata, uid: 'uid-2' };
    runtime.node.registry.learnPod({ ...pod, sandboxId: 'b'.repeat(64), metadata });
    const container = {
      limits: {},
      requests: {},
      resizePolicy: { cpu: 'NotRequired', memory: 'NotRequired' },
    } as const;
    runtime.specs.set('uid-2', {
      containers: [
        { ...container, name: 'init', kind: 'init' },
        { ...container, name: 'app', kind: 'app' },
      ],
      limits: {},
      requests: {},
      qosClass: 'Burstable',
      priority: 0,
      volumes: new Map(),
    } satisfies PodSpec);
    await request({ memory: 550 });
    await expect(request({ memory: 551 })).rejects.toMatchObject({ reason: 'NODE_FULL', context: { found: '550Mi' } });
  });

  test('the requests that ResizePod has set for another pod count until kubelet admits other values', async () => {
    const { admitted } = runtime.node;
    runtime.allocated.set('uid-2', entry({ app: { memory: mi(300) } }));
    admitted.record('uid-2', { memory: mi(800), milliCpu: 0 }, runtime.allocated.get('uid-2'));
    await expect(request({ memory: 201 })).rejects.toMatchObject({ reason: 'NODE_FULL' });
    runtime.allocated.set('uid-2', entry({ app: { memory: mi(400) } }));
    await request({ memory: 600 });
  });

  test('the requests of a resize count for other pods once it is applied, but not after a failure or a dry run', async () => {
    const { admitted } = runtime.node;
    const recorded = () => admitted.of('uid-1', undefined)?.memory;
    await resize(requesting({ memory: 400 }), true);
    expect(recorded()).toBeUndefined();
    await request({ memory: 400 });
    expect(recorded()).toBe(400 * MiB);
    runtime.applyUpdates(() => true);
    let freed = 0;
    const fails = async (memory: number): Promise<void> => {
      const earlierMemoryRequests = { containers: { c0: mi(400) } };
      const containers = new Map([['c0', { memory: mi(700) }]]);
      const wanted = { ...requesting({ memory }), containers, earlierMemoryRequests };
      const options = { dryRun: false, deadline: performance.now() + 60_000, onRoomFreed: () => void (freed += 1) };
      await expect(resizePod(runtime.node, SANDBOX, wanted, options)).rejects.toMatchObject({ code: 5 });
      expect(recorded()).toBe(400 * MiB);
    };
    await fails(500);
    expect(freed).toBe(1);
    await fails(300);
    await fails(400);
    expect(freed).toBe(1);
    runtime.node.registry.forgetPod(SANDBOX);
    expect(recorded()).toBeUndefined();
  });
});

test('a pod that is removed while its resize is admitted leaves no record of requests', async () => {
  const { registry, admitted } = runtime.node;
  runtime.wrapResponder('ListContainers', async (listed, obey) => {
    const containers = await obey(listed);
    registry.forgetPod(SANDBOX);
    return containers;
  });
  await resize({ ...requesting({ memory: 400 }), containers: new Map() });
  expect([admitted.uids, registry.pods]).toEqual([[], []]);
});

test('a request is not rejected if the size of the node cannot be read', async () => {
  rmSync(join(runtime.procRoot, 'meminfo'));
  rmSync(join(runtime.procRoot, 'stat'));
  await request({ memory: 100_000, cpu: 100_000 });
  expect(runtime.limitOf(0)).toBe(2 ** 42);
});
