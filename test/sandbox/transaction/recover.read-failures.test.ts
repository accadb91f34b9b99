import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { markedHigh } from '../../../src/cgroups/memory-high.ts';
import { CgroupTree } from '../../../src/cgroups/tree.ts';
import { steadyNow } from '../../../src/core/clock.ts';
import { bytes, microseconds } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { runtimePath } from '../../../src/runtime/backend.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import type { VolumeRecord } from '../../../src/sandbox/journal/record.ts';
import { resizePod } from '../../../src/sandbox/operations/resize-pod.ts';
import type { Step } from '../../../src/sandbox/plan/step.ts';
import { Registry } from '../../../src/sandbox/pods/registry.ts';
import { recover, recoverPod } from '../../../src/sandbox/transaction/recover.ts';
import { eventually } from '../../support/fake-clock.ts';
import { containerId, FakeRuntime, podConfig, RuntimeFailure, SANDBOX } from '../../support/fake-runtime.ts';
import { mi } from '../../support/quantities/mebibytes.ts';
import { interrupted } from '../../support/resize/interrupted.ts';
import { ContainerUpdates, desired } from '../../support/resize/resized-pod.ts';
import {
  CONTAINER_SCOPE,
  cpuMax,
  POD_SLICE,
  quotaIn,
  roundedStep,
  setQuota,
  startSystemdPod,
} from '../../support/resize/systemd-pod.ts';

let runtime: FakeRuntime;

describe('a recovery in which one read fails', () => {
  /** Kernel or runtime reads that fail during a recovery: it stops in a safe state, and the next one continues. */

  const BEFORE = [300, 100, 200];

  const raise: readonly Step[] = [
    { kind: 'pod-memory', from: mi(300), to: mi(400) },
    { kind: 'container', id: containerId(0), memory: { from: mi(100), to: mi(150) } },
    { kind: 'container', id: containerId(1), memory: { from: mi(200), to: mi(250) } },
  ];
  const transfer: readonly Step[] = [
    { kind: 'container', id: containerId(1), memory: { from: mi(200), to: mi(50) } },
    { kind: 'container', id: containerId(0), memory: { from: mi(100), to: mi(250) } },
  ];
  const lower: readonly Step[] = [
    { kind: 'container', id: containerId(1), memory: { from: mi(200), to: mi(50) } },
    { kind: 'pod-memory', from: mi(300), to: mi(150) },
  ];
  const raiseLowered: readonly Step[] = [
    { kind: 'pod-memory', from: mi(150), to: mi(250) },
    { kind: 'container', id: containerId(0), memory: { from: mi(100), to: mi(200) } },
  ];

  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
  });

  afterEach(async () => {
    vi.restoreAllMocks();
    await runtime.close();
  });

  const pod = async () => (await runtime.node.registry.pod(SANDBOX))!;
  const found = (): number[] => [
    Number(runtime.read('memory.max')) / MiB,
    ...[0, 1].map((index) => runtime.limitOf(index) / MiB),
  ];
  const has = ([podMemory = 0, ...containers]: readonly number[]): void => {
    runtime.writeFile('/kubepods/pod1', 'memory.max', String(podMemory * MiB));
    for (const [index, memory] of containers.entries())
      runtime.writeFile(`/kubepods/pod1/${containerId(index)}`, 'memory.max', String(memory * MiB));
  };
  const begin = async (steps: readonly Step[]) =>
    runtime.node.journal.begin(await pod(), steps, { volumes: runtime.node.policies.records(SANDBOX) });
  const journal = (): string[] => readdirSync(runtime.stateFolder).filter((name) => name.endsWith('.json'));

  /** The states in which the pod's limit was below the sum of its containers'. */
  let unsafe: number[][];
  const check = (): void => {
    const [podMemory = 0, ...containers] = found();
    if (containers.reduce((sum, memory) => sum + memory, 0) > podMemory) unsafe.push(found());
  };

  beforeEach(() => {
    unsafe = [];
    // Before each update.
    runtime.applyUpdates(() => {
      check();
      return false;
    });
  });

  /** Makes one read of limits or of a container fail. Returns a function that reports whether that read occurred. */
  function failRead(number: number): () => boolean {
    const { tree, registry } = runtime.node;
    let reads = 0;
    const failing = (): void => {
      check();
      reads += 1;
      if (reads === number) throw new Error('EIO');
    };
    const readLimits = tree.readLimits.bind(tree);
    vi.spyOn(tree, 'readLimits').mockImplementation(async (cgroup) => {
      failing();
      return readLimits(cgroup);
    });
    const describeContainer = registry.describeContainer.bind(registry);
    vi.spyOn(registry, 'describeContainer').mockImplementation(async (id) => {
      failing();
      return describeContainer(id);
    });
    return () => reads >= number;
  }

  /** Recovers with each of its reads failing in turn, then without a failure. Returns the states after failures. */
  async function failEachRead(prepare: () => Promise<void>): Promise<number[][]> {
    const stops: number[][] = [];
    for (let number = 1; ; number += 1) {
      await prepare();
      const hasFailed = failRead(number);
      const isRecovered = await recover(runtime.node);
      vi.restoreAllMocks();
      if (!hasFailed()) return stops;
      check();
      expect([number, isRecovered || journal().length]).toEqual([number, isRecovered ? true : 1]);
      stops.push(found());
      expect(await recover(runtime.node)).toBe(true);
      check();
      expect([number, journal(), unsafe]).toEqual([number, [], []]);
      stops.push(found());
    }
  }

  const after = (stops: readonly number[][]): number[][] => stops.filter((_, at) => at % 2 === 1);

  test.each([
    ['a raise', [raise], [400, 150, 250]],
    ['a transfer', [transfer], [300, 250, 50]],
    ['a decrease and a raise after it', [lower, raiseLowered], [250, 200, 50]],
  ])(
    'KEP-1287: if a read fails, recovery keeps the sum below the pod limit, and the next one rolls back the rest: %s',
    async (_, transactions, applied) => {
      const stops = await failEachRead(async () => {
        for (const steps of transactions) await (await begin(steps)).undoing();
        has(applied);
      });
      expect(stops.length).toBeGreaterThan(10);
      expect(new Set(after(stops).map(String))).toEqual(new Set([String(BEFORE)]));
      // Some recoveries have stopped half-way.
      expect(new Set(stops.map(String)).size).toBeGreaterThan(2);
    },
  );

  test('a failed read does not end a fully applied transaction as rolled back', async () => {
    const applied = [400, 150, 250];
    const stops = await failEachRead(async () => {
      await begin(raise);
      has(applied);
    });
    expect(stops.length).toBeGreaterThan(4);
    expect(new Set(stops.map(String))).toEqual(new Set([String(applied)]));
  });

  test('a failed read requests another recovery, also if the recovery ran before a request', async () => {
    const asked = vi.fn();
    runtime.node.journal.onUnfinished(asked);
    await (await begin(raise)).undoing();
    has([400, 150, 250]);
    asked.mockClear();
    // Fails the read of the comparison after the last step, when the containers are rolled back.
    vi.spyOn(runtime.node.tree, 'readLimits').mockImplementation((cgroup) => {
      if (found()[1] === 100) return Promise.reject(new Error('EIO'));
      return CgroupTree.prototype.readLimits.call(runtime.node.tree, cgroup);
    });
    await expect(recoverPod(runtime.node, await pod())).rejects.toMatchObject({ reason: 'UNDO_FAILED' });
    expect([asked.mock.calls.length > 0, found()]).toEqual([true, [400, 100, 200]]);
    expect(runtime.node.journal.transactionOf(await pod())?.failed).toContain('EIO');
  });
});

describe('replaced sandboxes', () => {
  const NEXT = 'b'.repeat(64);

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

  /** Simulates a runtime that has removed the known sandbox and has created another one for the pod. */
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
});

describe('room for the rollback', () => {
  const cpu = (quota: number) => ({ quota: microseconds(quota), period: microseconds(100_000) });

  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    runtime.applyUpdates();
    runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
  });

  afterEach(() => runtime.close());
  const { begin, has, uses, found, journal } = interrupted(() => runtime);

  describe('a resize that began after a failed rollback', () => {
    // Both change the pod limit.
    const lower: readonly Step[] = [
      { kind: 'container', id: containerId(1), memory: { from: mi(200), to: mi(50) } },
      { kind: 'pod-memory', from: mi(300), to: mi(150) },
    ];
    const raise: readonly Step[] = [
      { kind: 'pod-memory', from: mi(150), to: mi(250) },
      { kind: 'container', id: containerId(0), memory: { from: mi(100), to: mi(200) } },
    ];

    test.each([
      ['before its first step', 150, 100, 50],
      ['after the pod step', 250, 100, 50],
      ['after all steps', 250, 200, 50],
    ])(
      'KEP-1287: a resize that stopped %s is rolled back together with an earlier one whose rollback failed',
      async (_when, podMemory, ...containers) => {
        await begin(lower);
        await begin(raise);
        has(podMemory, ...containers);
        await recover(runtime.node);
        expect(found()).toEqual([300, 100, 200]);
        expect(journal()).toEqual([]);
      },
    );

    test('KEP-1287: a lowered container stays lower while a raise by a later resize could not be rolled back', async () => {
      await begin(lower);
      await begin(raise);
      has(250, 200, 50);
      runtime.applyUpdates((id) => id === containerId(0));
      await recover(runtime.node);
      expect(found()).toEqual([250, 200, 50]);
      expect(journal()).toHaveLength(1);
      runtime.applyUpdates();
      await recover(runtime.node);
      expect(found()).toEqual([300, 100, 200]);
      expect(journal()).toEqual([]);
    });

    test('KEP-1287: a lowered container stays lower while the pod uses more than the limit between two resizes', async () => {
      await begin(lower);
      await begin(raise);
      has(250, 200, 50);
      uses('/kubepods/pod1', 200 * MiB);
      await recover(runtime.node);
      expect(found()).toEqual([250, 100, 50]);
      expect(journal()).toHaveLength(1);
      uses('/kubepods/pod1', 0);
      await recover(runtime.node);
      expect(found()).toEqual([300, 100, 200]);
      expect(journal()).toEqual([]);
    });
  });

  describe('a transfer between containers', () => {
    const transfer: readonly Step[] = [
      {
        kind: 'container',
        id: containerId(1),
        memory: { from: mi(200), to: mi(50) },
        cpu: { from: cpu(20_000), to: cpu(5000) },
      },
      { kind: 'container', id: containerId(0), memory: { from: mi(100), to: mi(250) } },
    ];

    test('KEP-1287: a lowered container stays lower while the raise of another container could not be rolled back', async () => {
      await (await begin(transfer)).undoing();
      has(300, 250, 50);
      runtime.applyUpdates((id) => id === containerId(0));
      await recover(runtime.node);
      expect(found()).toEqual([300, 250, 50]);
      expect(journal()).toHaveLength(1);
      runtime.applyUpdates();
      await recover(runtime.node);
      expect(found()).toEqual([300, 100, 200]);
      expect(journal()).toEqual([]);
    });
  });
});

describe('rounded quotas', () => {
  beforeEach(async () => {
    runtime = await startSystemdPod();
  });

  afterEach(() => runtime.close());

  const podStep: Step = { kind: 'pod-cpu', from: cpuMax(10_000), to: cpuMax(34_560) };
  const memoryStep: Step = { kind: 'pod-memory', from: bytes(100 * MiB), to: bytes(200 * MiB) };

  async function interrupt(steps: readonly Step[]): Promise<void> {
    const pod = (await runtime.node.registry.pod(SANDBOX))!;
    await runtime.node.journal.begin(pod, steps, { volumes: runtime.node.policies.records(SANDBOX) });
  }

  test('recovery finishes a fully applied resize whose quotas systemd has rounded since', async () => {
    await interrupt([podStep, roundedStep]);
    setQuota(runtime, POD_SLICE, 35_000);
    setQuota(runtime, CONTAINER_SCOPE, 35_000);
    await recover(runtime.node);
    expect(runtime.warnings.at(-1)).toMatchObject({ outcome: 'finished' });
    expect([quotaIn(runtime, POD_SLICE), quotaIn(runtime, CONTAINER_SCOPE)]).toEqual(['35000', '35000']);
  });

  test('recovery rolls back a partly applied resize whose quotas systemd has rounded since', async () => {
    const updates: bigint[] = [];
    runtime.on('UpdateContainerResources', (request) => {
      const { cpu_quota = 0n } = runtime.decodeUpdate(request).linux ?? {};
      updates.push(cpu_quota);
      setQuota(runtime, CONTAINER_SCOPE, Number(cpu_quota));
      return Buffer.alloc(0);
    });
    await interrupt([podStep, roundedStep, memoryStep]);
    setQuota(runtime, POD_SLICE, 35_000);
    setQuota(runtime, CONTAINER_SCOPE, 35_000);
    await recover(runtime.node);
    expect(runtime.warnings.at(-1)).toMatchObject({ outcome: 'undone' });
    expect([quotaIn(runtime, POD_SLICE), quotaIn(runtime, CONTAINER_SCOPE)]).toEqual(['10000', '10000']);
    expect(updates).toEqual([10_000n]);
  });

  test('recovery keeps a pod quota that is neither the old nor the new one, even after rounding', async () => {
    await interrupt([podStep, memoryStep]);
    setQuota(runtime, POD_SLICE, 36_000);
    await recover(runtime.node);
    expect(quotaIn(runtime, POD_SLICE)).toBe('36000');
  });

  test('recovery keeps a container quota that is neither old nor new, although the runtime has stored the new one', async () => {
    runtime.describeContainer(
      containerId(0),
      {
        metadata: { name: 'c0' },
        state: 1,
        resources: { linux: { cpu_quota: 34_560n, cpu_period: 100_000n } },
      },
      100,
    );
    await interrupt([roundedStep, memoryStep]);
    setQuota(runtime, CONTAINER_SCOPE, 36_000);
    await recover(runtime.node);
    expect(quotaIn(runtime, CONTAINER_SCOPE)).toBe('36000');
    expect(runtime.calls).not.toContain('UpdateContainerResources');
    expect(runtime.warnings.at(-1)).toMatchObject({ outcome: 'undone' });
  });

  test('recovery distinguishes the new quota from an old quota that rounds to it', async () => {
    const steps: Step[] = [{ ...roundedStep, cpu: { from: cpuMax(34_560), to: cpuMax(35_000) } }, memoryStep];
    runtime.on('UpdateContainerResources', (request) => {
      setQuota(runtime, CONTAINER_SCOPE, Number(runtime.decodeUpdate(request).linux?.cpu_quota));
      return Buffer.alloc(0);
    });
    await interrupt(steps);
    setQuota(runtime, CONTAINER_SCOPE, 35_000);
    await recover(runtime.node);
    expect(quotaIn(runtime, CONTAINER_SCOPE)).toBe('34560');
  });
});

describe('updates without an answer', () => {
  /**
   * Updates that the runtime has not answered may still take effect: a killed containerd does not stop its runc, and a
   * stopped containerd continues. The updates of one container take effect in order.
   */

  const UPDATE = 'UpdateContainerResources';
  /** Delivers the update that has not taken effect yet. */
  let onItsWay: (() => void) | undefined;
  /** The runtime's answer to all calls, while it does not serve. */
  let refusal: RuntimeFailure | undefined;
  /** The id of a container whose updates are not answered. */
  let hangs: string | undefined;

  function arrive(): void {
    onItsWay?.();
    onItsWay = undefined;
  }

  const noAnswer = new RuntimeFailure(status.UNAVAILABLE, 'the connection has ended');
  const starting = new RuntimeFailure(status.UNKNOWN, 'server is not initialized yet');

  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    for (const index of [0, 1])
      runtime.node.registry.learnContainer({ containerId: containerId(index), sandboxId: SANDBOX, name: `c${index}` });
    runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
    runtime.applyUpdates();
    runtime.wrapResponder(UPDATE, (request, before) => {
      const { container_id } = runtime.decodeUpdate(request);
      if (container_id === hangs) return new Promise(() => undefined);
      if (container_id === containerId(0)) arrive();
      return before(request);
    });
    for (const method of ['ContainerStatus', 'ListContainers', 'PodSandboxStatus', UPDATE])
      runtime.wrapResponder(method, (request, before) => {
        if (refusal !== undefined) throw refusal;
        return before(request);
      });
    onItsWay = undefined;
    refusal = undefined;
    hangs = undefined;
    // Deadlines expire only when a test says so. Unlike expect.poll, `eventually` does not advance the fake time.
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  });

  afterEach(() => {
    vi.useRealTimers();
    return runtime.close();
  });
  const { found, journal } = interrupted(() => runtime);

  /** The runtime ends at the first update of the first container to this limit. */
  function goesAtUpdate(mebibytes: number): void {
    let isGone = false;
    runtime.wrapResponder(UPDATE, (request, before) => {
      const { container_id, linux } = runtime.decodeUpdate(request);
      if (isGone || linux?.memory_limit_in_bytes !== BigInt(mi(mebibytes))) return before(request);
      isGone = true;
      refusal = noAnswer;
      onItsWay = () => runtime.writeFile(`/kubepods/pod1/${container_id}`, 'memory.max', String(mi(mebibytes)));
      throw noAnswer;
    });
  }

  /** UpdateContainerResources of a CRI client. */
  const update = (mebibytes: number, index = 0): Promise<Buffer> =>
    new ContainerUpdates(runtime).update(
      mi(mebibytes),
      () =>
        runtime.backend.call(
          runtimePath(UPDATE),
          encode(`${UPDATE}Request`, {
            container_id: containerId(index),
            linux: { memory_limit_in_bytes: BigInt(mi(mebibytes)) },
          }),
        ),
      containerId(index),
    );

  const ways: readonly (readonly [string, () => Promise<unknown>])[] = [
    [UPDATE, () => update(220)],
    [
      'ResizePod',
      () =>
        resizePod(runtime.node, SANDBOX, desired({ c0: { memory: mi(220) } }), { dryRun: false, deadline: Infinity }),
    ],
  ];

  describe.each(ways)('%s without an answer', (_way, call) => {
    test.each([
      ['before the runtime is back', true],
      ['once the runtime is back', false],
    ])(
      'KEP-1287: the pod limit has room for an unanswered update that arrives %s, which is then rolled back',
      async (_when, isEarly) => {
        goesAtUpdate(220);
        await expect(call()).rejects.toThrow('the connection has ended');
        expect(found()).toEqual([420, 100, 200]);
        expect(journal()).toHaveLength(1);
        if (isEarly) arrive();
        refusal = undefined;
        expect(await recover(runtime.node)).toBe(true);
        arrive();
        expect(found()).toEqual([300, 100, 200]);
        expect(journal()).toEqual([]);
      },
    );

    test('the pod limit has room for an unanswered update until a starting runtime serves calls', async () => {
      goesAtUpdate(220);
      await expect(call()).rejects.toThrow('the connection has ended');
      refusal = starting;
      expect(await recover(runtime.node)).toBe(false);
      expect(found()).toEqual([420, 100, 200]);
      refusal = undefined;
      expect(await recover(runtime.node)).toBe(true);
      expect(found()).toEqual([300, 100, 200]);
    });
  });

  describe('an update without an answer', () => {
    beforeEach(async () => {
      goesAtUpdate(220);
      await expect(update(220)).rejects.toThrow('the connection has ended');
      refusal = undefined;
    });

    test('an unanswered update that the client repeats is not rolled back', async () => {
      await update(220);
      expect(found()).toEqual([420, 220, 200]);
      expect(journal()).toEqual([]);
      expect(await recover(runtime.node)).toBe(true);
      expect(found()).toEqual([420, 220, 200]);
    });

    test('KEP-1287: the pod limit has room for an unanswered update next to a later one of another container', async () => {
      await update(250, 1);
      expect(found()).toEqual([470, 100, 250]);
      expect(journal()).toHaveLength(1);
      arrive();
      expect(found()).toEqual([470, 220, 250]);
      expect(await recover(runtime.node)).toBe(true);
      expect(found()).toEqual([350, 100, 250]);
      expect(journal()).toEqual([]);
    });

    test('the pod limit has room for an unanswered update after a later update that needs no step of the pod', async () => {
      await update(200, 1);
      expect(found()).toEqual([420, 100, 200]);
      expect(journal()).toHaveLength(1);
      arrive();
      expect(await recover(runtime.node)).toBe(true);
      expect(found()).toEqual([300, 100, 200]);
      expect(journal()).toEqual([]);
    });

    test('the rollback of an unanswered update keeps the values of a later ResizePod', async () => {
      const target = desired({ c0: { memory: mi(120) }, c1: { memory: mi(250) } });
      await resizePod(runtime.node, SANDBOX, target, { dryRun: false, deadline: Infinity });
      expect(await recover(runtime.node)).toBe(true);
      expect(found()).toEqual([370, 120, 250]);
      expect(journal()).toEqual([]);
    });

    test('an unanswered update cannot arrive after the runtime has rejected another update of its container', async () => {
      runtime.wrapResponder(UPDATE, async (request, before) => {
        await before(request);
        throw new RuntimeFailure(status.INTERNAL, 'device or resource busy');
      });
      expect(await recover(runtime.node)).toBe(true);
      expect(found()).toEqual([300, 100, 200]);
      expect(journal()).toEqual([]);
    });

    test('an unanswered update is not reported as rolled back', () => {
      expect(runtime.node.history.ofPod(SANDBOX)[0]).toMatchObject({ state: 'Infeasible', isRolledBack: false });
    });
  });

  test('an unanswered ResizePod reports that a part of it is not rolled back', async () => {
    const left: string[] = [];
    const onLeftUnfinished = (): void => void left.push('unfinished');
    const options = { dryRun: false, deadline: Infinity, onLeftUnfinished };
    goesAtUpdate(220);
    await expect(resizePod(runtime.node, SANDBOX, desired({ c0: { memory: mi(220) } }), options)).rejects.toThrow();
    expect(left).toEqual(['unfinished']);
  });

  test('the pod limit has room for an unanswered update after a later update without a journal record', async () => {
    runtime.writeFile('/kubepods/pod1', 'memory.max', String(450 * MiB));
    goesAtUpdate(220);
    await expect(update(220)).rejects.toThrow('the connection has ended');
    expect(journal()).toHaveLength(1);
    refusal = undefined;
    await update(240, 1);
    expect(found()).toEqual([460, 100, 240]);
    arrive();
    expect(await recover(runtime.node)).toBe(true);
    expect(found()).toEqual([450, 100, 240]);
    expect(journal()).toEqual([]);
  });

  test('KEP-1287: an unanswered update delays no other update of its pod, and delays the first recovery by at most 2 s', async () => {
    hangs = containerId(0);
    let isDescribed = true;
    runtime.wrapResponder('ContainerStatus', (request, before) => {
      const isHanging = !isDescribed && decode('ContainerStatusRequest', request).container_id === hangs;
      // containerd locks the status of a container during an update.
      return isHanging ? new Promise(() => undefined) : before(request);
    });
    const call = (): Promise<unknown> =>
      new ContainerUpdates(runtime).update(mi(220), () =>
        runtime.backend.call(runtimePath(UPDATE), runtimeRequest(220), { deadline: performance.now() + 100 }),
      );
    // The call has to be sent before its deadline.
    const sent = runtime.calls.length;
    const unanswered = expect(call()).rejects.toMatchObject({ code: status.DEADLINE_EXCEEDED });
    await eventually(() => runtime.calls.slice(sent).includes(UPDATE));
    await vi.advanceTimersByTimeAsync(100);
    await unanswered;
    isDescribed = false;
    const recovery = recover(runtime.node);
    // Fake time does not advance during the update.
    await update(250, 1);
    await eventually(() => runtime.node.calls.isHeld(containerId(0)));
    await vi.advanceTimersByTimeAsync(2000);
    expect(await recovery).toBe(false);
    expect(found()).toEqual([470, 100, 250]);
    hangs = undefined;
    expect(await recover(runtime.node)).toBe(true);
    expect(found()).toEqual([350, 100, 250]);
  });

  test('the next recovery waits longer for a slow runtime than the first recovery', async () => {
    goesAtUpdate(220);
    await expect(update(220)).rejects.toThrow('the connection has ended');
    refusal = undefined;
    const slow: (() => void)[] = [];
    runtime.wrapResponder(UPDATE, async (request, before) => {
      const answer = await before(request);
      await new Promise<void>((resolve) => slow.push(resolve));
      return answer;
    });
    const recoverIn = async (ms: number): Promise<boolean> => {
      const asked = slow.length;
      const recovery = recover(runtime.node);
      await eventually(() => slow.length === asked + 1);
      await vi.advanceTimersByTimeAsync(ms);
      for (const answer of slow) answer();
      return recovery;
    };
    expect(await recoverIn(1800)).toBe(false);
    expect(found()).toEqual([420, 100, 200]);
    expect(await recoverIn(1800)).toBe(true);
    expect(found()).toEqual([300, 100, 200]);
    expect(journal()).toEqual([]);
  });

  test('a request waits until its deadline for a runtime that does not answer, and does not extend the wait of a recovery', async () => {
    goesAtUpdate(220);
    await expect(update(220)).rejects.toThrow('the connection has ended');
    refusal = undefined;
    hangs = containerId(0);
    const { unanswered } = runtime.node.journal;
    for (const ms of [100, 200]) {
      const isSettled = vi.fn();
      const resized = resizePod(runtime.node, SANDBOX, desired({ c1: { memory: mi(210) } }), {
        dryRun: false,
        deadline: steadyNow() + ms,
      });
      const rejected = expect(resized.finally(isSettled)).rejects.toThrow('could not be rolled back');
      await eventually(() => runtime.node.calls.isHeld(containerId(0)));
      await vi.advanceTimersByTimeAsync(ms - 1);
      expect(isSettled).not.toHaveBeenCalled();
      // The recovery would otherwise wait for 1.5 s.
      await vi.advanceTimersByTimeAsync(1);
      await rejected;
    }
    expect(unanswered.waitsFor(SANDBOX, containerId(0))).toBe(0);
    refusal = noAnswer;
    expect(await recover(runtime.node)).toBe(false);
    expect(unanswered.waitsFor(SANDBOX, containerId(0))).toBe(0);
  });

  const runtimeRequest = (mebibytes: number): Buffer =>
    encode(`${UPDATE}Request`, {
      container_id: containerId(0),
      linux: { memory_limit_in_bytes: BigInt(mi(mebibytes)) },
    });

  test('KEP-1287: the journal record does not grow with each retry of an unanswered update', async () => {
    const sizes = new Set<number>();
    for (let attempt = 0; attempt < 4; attempt += 1) {
      goesAtUpdate(220);
      await expect(update(220)).rejects.toThrow('the connection has ended');
      refusal = undefined;
      const [name = ''] = journal();
      sizes.add(
        (JSON.parse(readFileSync(join(runtime.stateFolder, name), 'utf8')) as { transaction: { steps: object[] } })
          .transaction.steps.length,
      );
    }
    expect(sizes.size).toBe(1);
  });
});
