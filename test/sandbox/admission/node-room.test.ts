import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { CgroupTree } from '../../../src/cgroups/tree.ts';
import type { Bytes, Limit } from '../../../src/core/quantities/numbers.ts';
import { bytes, microseconds } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { EntryLimits, PodEntry } from '../../../src/kubelet/checkpoint.ts';
import { milliCpuToShares } from '../../../src/kubelet/formulas.ts';
import type { PodDescription } from '../../../src/runtime/description.ts';
import type { NodeRoom } from '../../../src/sandbox/admission/node-room.ts';
import {
  AdmittedRequests,
  assertNodeHasRoom,
  assertWithinCgroups,
  limitsAbove,
  memorySizes,
  nodeAllocatable,
  nodeSize,
} from '../../../src/sandbox/admission/node-room.ts';
import { resizePod } from '../../../src/sandbox/operations/resize-pod.ts';
import type { DesiredPod } from '../../../src/sandbox/plan/resize-request.ts';
import type { Amounts, DeclaredContainer } from '../../../src/sandbox/pods/declared-pod.ts';
import type { PodSpec } from '../../../src/sandbox/pods/pod-spec.ts';
import type { PodState } from '../../../src/sandbox/pods/pod-state.ts';
import type { FakeRuntime } from '../../support/fake-runtime.ts';
import { containerId, SANDBOX } from '../../support/fake-runtime.ts';
import { mi } from '../../support/quantities/mebibytes.ts';
import { ResizedPod } from '../../support/resize/resized-pod.ts';

describe('room on the node', () => {
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

  /** A resize of c0 to these requests, with limits far above them and above the node's resources. */
  const requesting = ({ memory, cpu }: Wanted): DesiredPod => ({
    pod: {},
    containers: new Map([
      [
        'c0',
        { memory: bytes(2 ** 42), cpu: cpus(10_000), ...(cpu !== undefined && { shares: milliCpuToShares(cpu) }) },
      ],
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
      runtime.allocated.set('uid-1', entry({ c0: { memory: mi(100), milliCpu: 10 }, c1: { memory: mi(500) } }));
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
      await expect(request({ memory: 551 })).rejects.toMatchObject({
        reason: 'NODE_FULL',
        context: { found: '550Mi' },
      });
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

  test('KEP-1287: the pods that kubelet does not list count with their specs, and without these with their CPU shares', async () => {
    const pod = (await runtime.node.registry.pod(SANDBOX))!;
    const metadata = { ...pod.metadata, uid: 'uid-2' };
    runtime.makeNode(1000 * MiB, 4);
    const other = { ...pod, sandboxId: 'b'.repeat(64), metadata, cpuShares: milliCpuToShares(3000) };
    runtime.node.registry.learnPod(other);
    await expect(request({ cpu: 2000 })).rejects.toMatchObject({ reason: 'NODE_FULL' });
    await request({ cpu: 900, memory: 100 });
    const resizePolicy = { cpu: 'NotRequired', memory: 'NotRequired' } as const;
    runtime.specs.set('uid-2', {
      containers: [{ name: 'app', kind: 'app', limits: {}, requests: { memory: mi(800) }, resizePolicy }],
      limits: {},
      requests: {},
      qosClass: 'Burstable',
      priority: 0,
      volumes: new Map(),
    } satisfies PodSpec);
    await expect(request({ memory: 201 })).rejects.toMatchObject({ reason: 'NODE_FULL', context: { found: '200Mi' } });
    await request({ cpu: 2000, memory: 200 });
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
});

const requests = (milliCpu: number) => ({ memory: bytes(0), milliCpu });

test('undoing a record of requests restores the previous one', () => {
  const admitted = new AdmittedRequests();
  admitted.record('u', requests(100), undefined);
  admitted.record('u', requests(200), undefined)();
  expect(admitted.of('u', undefined)).toEqual(requests(100));
});

test('undoing a record of requests after its pod was forgotten leaves no record', () => {
  const admitted = new AdmittedRequests();
  admitted.record('u', requests(100), undefined);
  const undo = admitted.record('u', requests(200), undefined);
  admitted.forget('u');
  undo();
  expect([admitted.of('u', undefined), admitted.uids]).toEqual([undefined, []]);
});

test('undoing an older record of requests keeps the newer one', () => {
  const admitted = new AdmittedRequests();
  const undo = admitted.record('u', requests(100), undefined);
  admitted.record('u', requests(200), undefined);
  undo();
  expect(admitted.of('u', undefined)).toEqual(requests(200));
});

describe('allocatable resources of the node', () => {
  const pod = { cgroupParent: '/a/b/podu' } as PodDescription;
  type LiveLimits = ReturnType<CgroupTree['readLimitsNow']>;
  const period = microseconds(100_000);
  const NONE = { memoryMax: 'max', cpuMax: { quota: 'max', period } } as unknown as LiveLimits;

  let procRoot: string;

  beforeEach(() => {
    procRoot = mkdtempSync(join(tmpdir(), 'proc-'));
    writeFileSync(join(procRoot, 'meminfo'), 'MemTotal:       1000 kB\nMemFree:        1 kB\n');
    writeFileSync(join(procRoot, 'stat'), 'cpu  1 2\ncpu0 1 2\ncpu12 1 2\nintr 5 cpu3 \n');
  });

  afterEach(() => rmSync(procRoot, { recursive: true }));

  /** Limits of the cgroups above the pod's. The pod's own are never read. */
  const parts = (limits: Readonly<Record<string, LiveLimits>> = {}, inApi?: Amounts) => ({
    tree: {
      readLimitsNow: (cgroup: string): LiveLimits => {
        if (cgroup === '/a/b/podu') throw new Error('the pod itself');
        return limits[cgroup] ?? NONE;
      },
    } as Pick<CgroupTree, 'readLimitsNow'>,
    allocatable: { amounts: () => inApi },
    procRoot,
  });
  const limited = (memory: number, quota: number): LiveLimits =>
    ({ memoryMax: bytes(memory), cpuMax: { quota: microseconds(quota), period } }) as unknown as LiveLimits;

  test('nodeSize returns the memory and the online CPUs of the node, without values that cannot be read', () => {
    expect(nodeSize(procRoot)).toEqual({ memory: 1_024_000, milliCpu: 2000 });
    rmSync(join(procRoot, 'stat'));
    expect(nodeSize(procRoot)).toEqual({ memory: 1_024_000 });
    rmSync(join(procRoot, 'meminfo'));
    expect(nodeSize(procRoot)).toEqual({});
  });

  test('limitsAbove returns the finite limits of each cgroup that contains the pod', () => {
    const noCpu = { memoryMax: bytes(7) } as unknown as LiveLimits;
    const above = limitsAbove(parts({ '/a': noCpu, '/a/b': limited(5, 150_000) }).tree, pod);
    expect(above.memory.map(({ cgroup, amount, source }) => [cgroup, amount, source])).toEqual([
      ['/a', 7, 'cgroup /a allows no more'],
      ['/a/b', 5, 'cgroup /a/b allows no more'],
    ]);
    expect(above.milliCpu.map(({ cgroup, amount }) => [cgroup, amount])).toEqual([['/a/b', 1500]]);
    expect(limitsAbove(parts().tree, pod)).toEqual({ memory: [], milliCpu: [] });
    const counted = limitsAbove(parts({ '/a/b': limited(5, 150_000) }).tree, pod, (cgroup) => cgroup !== '/a');
    expect(counted.memory.map(({ cgroup }) => cgroup)).toEqual(['/a/b']);
  });

  describe('the allocatable resources of the node', () => {
    test('the allocatable amount is that of the API server, or otherwise the size of the node', () => {
      expect(nodeAllocatable(parts(), pod)).toEqual({
        memory: { amount: 1_024_000, source: 'the node has no more' },
        milliCpu: { amount: 2000, source: 'the node has no more' },
      });
      expect(nodeAllocatable(parts({}, { memory: bytes(9) }), pod)).toEqual({
        memory: { amount: 9, source: "the node's allocatable" },
      });
    });

    test('the allocatable amount is the lowest limit above the pod, if that is less than the node has', () => {
      const found = nodeAllocatable(parts({ '/a': limited(7, 190_000), '/a/b': limited(8, 150_000) }), pod);
      expect([found.memory?.amount, found.milliCpu?.amount]).toEqual([7, 1500]);
      const loose = nodeAllocatable(parts({ '/a': limited(2e6, 250_000) }), pod);
      expect([loose.memory?.source, loose.milliCpu?.source]).toEqual(Array(2).fill('the node has no more'));
    });

    test('without the size of the node, the allocatable amount is a limit above the pod, or unknown', () => {
      rmSync(join(procRoot, 'stat'));
      rmSync(join(procRoot, 'meminfo'));
      expect(nodeAllocatable(parts({ '/a': limited(7, 150_000) }), pod)).toMatchObject({
        memory: { amount: 7 },
        milliCpu: { amount: 1500 },
      });
      expect(nodeAllocatable(parts(), pod)).toEqual({});
    });
  });

  test('memorySizes lists the limits above the pod from low to high, then the API server, then the node', () => {
    expect(memorySizes(parts({ '/a': limited(9, 1000), '/a/b': limited(8, 1000) }, { memory: bytes(5) }), pod)).toEqual(
      [8, 9, 5, 1_024_000],
    );
    expect(memorySizes(parts({ '/a': limited(8, 1000), '/a/b': limited(9, 1000) }), pod)).toEqual([8, 9, 1_024_000]);
  });
});

describe('rules for requests and memory limits', () => {
  /** Checks only the rules, without reading a pod. */

  const pod = {
    cgroupParent: '/tenant/team/podu',
    metadata: { uid: 'u', namespace: 'default', name: 'web' },
  } as PodDescription;
  const requests = (memory: number, milliCpu: number) => ({ memory: bytes(memory), milliCpu });

  describe('the requests of a pod', () => {
    const room = (others = requests(0, 0)): NodeRoom => ({
      allocatable: { memory: { amount: 100, source: 'so' }, milliCpu: { amount: 1000, source: 'so' } },
      others,
    });
    const check =
      (before: [number, number], after: [number, number], given = room()) =>
      () =>
        assertNodeHasRoom(pod, { before: requests(...before), after: requests(...after) }, given);

    test('requests fit up to the allocatable amount of the node, less the requests of the other pods', () => {
      expect(check([1, 1], [100, 1000])).not.toThrow();
      expect(check([1, 1], [100, 1001])).toThrow('a CPU request of 1001m is more than 1: so');
      expect(check([1, 1], [60, 600], room(requests(40, 400)))).not.toThrow();
      expect(check([1, 1], [61, 600], room(requests(40, 400)))).toThrow('a memory request of 61 does not fit now');
      expect(check([1, 1], [60, 601], room(requests(40, 400)))).toThrow('600m is free');
    });

    test('requests that do not rise always fit, each resource separately', () => {
      expect(check([200, 2000], [200, 2000])).not.toThrow();
      expect(check([200, 1], [200, 1000])).not.toThrow();
      expect(check([200, 1], [201, 1])).toThrow('a memory request of 201 is more than 100');
    });

    test('requests fit if the allocatable amount is unknown, each resource separately', () => {
      const unknown: NodeRoom = { allocatable: { milliCpu: { amount: 1000, source: 'so' } }, others: requests(0, 0) };
      expect(check([1, 1], [1e9, 1000], unknown)).not.toThrow();
      expect(check([1, 1], [1e9, 1001], unknown)).toThrow('a CPU request');
    });

    test('a request that can never fit is infeasible, even if another resource would only be deferred', () => {
      expect(check([1, 1], [61, 1001], room(requests(40, 0)))).toThrow('a CPU request of 1001m is more than 1');
    });

    test('the rejection reports that nothing is free if other pods have requested more than the node has', () => {
      expect(check([1, 1], [2, 1], room(requests(150, 0)))).toThrow(/150 of 100 \(so\), 0 is free$/);
    });
  });

  describe('a memory limit above that of a cgroup that contains the pod', () => {
    const period = microseconds(100_000);
    const NO_CPU = { quota: 'max' as const, period };
    const parts = (limits: Readonly<Record<string, number>>) => ({
      tree: {
        readLimitsNow: (cgroup: string) => ({
          memoryMax: limits[cgroup] === undefined ? 'max' : bytes(limits[cgroup] * MiB),
          cpuMax: NO_CPU,
        }),
      } as unknown as Pick<CgroupTree, 'readLimitsNow'>,
    });
    const declared = (name: string, more: Partial<DeclaredContainer>): DeclaredContainer => ({
      name,
      kind: 'app',
      state: 'declared',
      ...more,
    });
    const state = (memory: Limit<Bytes>, containers: readonly DeclaredContainer[] = []): PodState => ({
      memory: bytes(10 * MiB),
      cpu: NO_CPU,
      weight: undefined,
      overhead: { memory: bytes(0), cpu: NO_CPU },
      containers: [{ id: 'i0', memory, cpu: NO_CPU }],
      volumes: [],
      declared: {
        source: 'spec',
        containers: [declared('c0', { id: 'i0', limits: {} }), ...containers],
        volumes: new Map(),
      },
    });
    const asking = (
      containers: Readonly<Record<string, Limit<Bytes> | undefined>>,
      own?: Limit<Bytes>,
    ): DesiredPod => ({
      pod: { ...(own !== undefined && { memory: own }) },
      containers: new Map(
        Object.entries(containers).map(([name, memory]) => [name, memory === undefined ? {} : { memory }]),
      ),
      volumes: new Map(),
    });
    const check =
      (
        now: PodState,
        desired: DesiredPod,
        limits: Readonly<Record<string, number>> = { '/tenant': 100, '/tenant/team': 50 },
      ) =>
      () =>
        assertWithinCgroups(parts(limits).tree, pod, now, desired);

    test('a memory limit of a container or a pod above that of a parent cgroup is rejected with the lowest such limit', () => {
      let thrown: unknown;
      try {
        check(state(mi(10)), asking({ c0: mi(51) }))();
      } catch (error) {
        thrown = error;
      }
      expect(thrown).toMatchObject({
        code: 9,
        reason: 'EXCEEDS_NODE',
        message: `container c0: memory.max ${51 * MiB} is more than ${50 * MiB}: cgroup /tenant/team allows no more`,
        context: { pod: 'u', file: 'memory.max', asked: String(51 * MiB), found: String(50 * MiB) },
      });
      expect(check(state(mi(10)), asking({}, mi(51)))).toThrow('pod default/web: memory.max');
      expect(check(state(mi(10)), asking({ c0: mi(51) }), { '/tenant': 50, '/tenant/team': 100 })).toThrow(
        'cgroup /tenant allows',
      );
    });

    test.each<[string, PodState, DesiredPod]>([
      ['a limit equal to the limit of the cgroup', state(mi(10)), asking({ c0: mi(50) }, mi(50))],
      ['none', state(mi(10)), asking({ c0: 'max' }, 'max')],
      ['no new limit', state(mi(10)), asking({ c0: undefined })],
      ['a limit that does not rise', state(mi(60)), asking({ c0: mi(60) })],
      ['a limit that is lowered', state('max'), asking({ c0: mi(60) })],
      ['the present limit, which the kernel has rounded', state(mi(60)), asking({ c0: bytes(60 * MiB + 1) })],
      [
        'the declared limit of a container that does not run',
        state(mi(1), [declared('c1', { limits: { memory: mi(60) } })]),
        asking({ c1: mi(60) }),
      ],
      [
        'a first limit for a container that does not run',
        state(mi(1), [declared('c1', { limits: {} })]),
        asking({ c1: mi(60) }),
      ],
    ])('assertWithinCgroups allows a memory limit: %s', (_, now, desired) => {
      expect(check(now, desired)).not.toThrow();
    });

    test('a memory limit raised above a parent cgroup is rejected for a container that is not running or unknown', () => {
      const ended = state(mi(1), [declared('c1', { limits: { memory: mi(59) } }), declared('c2', {})]);
      expect(check(ended, asking({ c1: mi(60) }))).toThrow('container c1');
      expect(check(ended, asking({ c2: mi(60) }))).toThrow('container c2');
      expect(check(ended, asking({ c3: mi(60) }))).toThrow('container c3');
      const { declared: _declared, ...undeclared } = ended;
      expect(_declared).toBeDefined();
      expect(check(undeclared, asking({ c0: mi(60) }))).toThrow('container c0');
    });

    test('a memory limit above that of a kubelet cgroup is allowed', () => {
      const kubepods = { ...pod, cgroupParent: '/kubepods/burstable/podu' };
      expect(() =>
        assertWithinCgroups(
          parts({ '/kubepods': 1, '/kubepods/burstable': 1 }).tree,
          kubepods,
          state(mi(10)),
          asking({ c0: mi(60) }),
        ),
      ).not.toThrow();
    });
  });
});
