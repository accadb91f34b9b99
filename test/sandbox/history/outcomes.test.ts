import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { Code } from '../../../src/core/grpc.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import { ContainerState } from '../../../src/runtime/messages.ts';
import { PodOutcomes } from '../../../src/sandbox/history/outcomes.ts';
import { resizePod } from '../../../src/sandbox/operations/resize-pod.ts';
import { updateContainer } from '../../../src/sandbox/operations/update-container.ts';
import { updatePod } from '../../../src/sandbox/operations/update-pod.ts';
import type { PodInfo } from '../../../src/sandbox/report/pod-info.ts';
import { podInfo } from '../../../src/sandbox/report/pod-info.ts';
import { containerId, containerUpdate, FakeRuntime, RuntimeFailure, SANDBOX } from '../../support/fake-runtime.ts';

let runtime: FakeRuntime;

afterEach(() => runtime.close());

describe('outcomes of resizes', () => {
  const ANSWER = Buffer.from('the answer of the runtime');

  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    runtime.applyUpdates();
    runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    [0, 1].forEach((index) =>
      runtime.node.registry.learnContainer({ containerId: containerId(index), sandboxId: SANDBOX, name: `c${index}` }),
    );
  });

  const info = (): Promise<PodInfo> => podInfo(runtime.node, runtime.decreaseReclaimer, SANDBOX);
  const limitOf = (mebibytes: number) => ({ 'memory.max': String(mebibytes * MiB) });

  /** Updates a container. Its cgroup has the new limit when the runtime answers. */
  const update = (memory: number, fails?: Error) =>
    updateContainer(
      runtime.node,
      containerUpdate(containerId(0), { memory_limit_in_bytes: BigInt(memory * MiB) }),
      () => {
        if (fails !== undefined) return Promise.reject(fails);
        runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'memory.max', String(memory * MiB));
        return Promise.resolve(ANSWER);
      },
    );

  describe('the info of a pod', () => {
    test('KEP-1287: the pod info has the values of the kernel as desired, allocated and actuated before any request', async () => {
      const { state, lastError, pod, containers } = await info();
      expect([state, lastError]).toEqual([undefined, undefined]);
      const limits = { ...limitOf(300), 'cpu.max': '20000 100000', 'cpu.weight': '39', 'cpu.shares': '1024' };
      const actual = { ...limits, 'memory.current': '1000000' };
      expect(pod).toEqual({ desired: limits, allocated: limits, actuated: limits, actual });
      expect(containers['c0']).toMatchObject({ id: containerId(0), desired: limitOf(100), actual: limitOf(100) });
    });

    test('the pod info has equal desired, allocated, actuated and actual values after an update', async () => {
      await update(150);
      const { state, pod, containers } = await info();
      expect(state).toBe('Completed');
      const four = { desired: limitOf(150), allocated: limitOf(150), actuated: limitOf(150), actual: limitOf(150) };
      expect(containers['c0']).toMatchObject(four);
      // The pod limit follows the container.
      expect(pod).toMatchObject({ allocated: limitOf(350), actuated: limitOf(350), actual: limitOf(350) });
    });

    test('the pod info has the reason but not the values of an invalid update', async () => {
      await update(150);
      await expect(update(-7)).rejects.toMatchObject({ reason: 'INVALID_VALUE' });
      const { state, lastError, containers } = await info();
      expect([state, lastError?.reason]).toEqual(['Infeasible', 'INVALID_VALUE']);
      expect(containers['c0']).toMatchObject({ desired: limitOf(150), actual: limitOf(150) });
    });

    test('the pod info is not changed by an invalid update while another update is in progress', async () => {
      let during: unknown;
      await updateContainer(
        runtime.node,
        containerUpdate(containerId(0), { memory_limit_in_bytes: BigInt(150 * MiB) }),
        async () => {
          await expect(update(-7)).rejects.toMatchObject({ reason: 'INVALID_VALUE' });
          during = runtime.node.outcomes.of(SANDBOX).state;
          runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'memory.max', String(150 * MiB));
          return ANSWER;
        },
      );
      expect(during).toBe('InProgress');
      expect((await info()).lastError).toBeUndefined();
    });

    test('the desired, allocated, actuated and actual values are equal after an update that changes nothing', async () => {
      await update(100);
      const four = { desired: limitOf(100), allocated: limitOf(100), actuated: limitOf(100), actual: limitOf(100) };
      expect((await info()).containers['c0']).toMatchObject(four);
    });

    test('the pod info has the desired value and the reason after a rejection, and the allocated value from before', async () => {
      runtime.writeCgroup(`/kubepods/pod1/${containerId(0)}`, {
        'memory.max': String(100 * MiB),
        'cpu.max': '10000 100000',
        'cpu.weight': '4',
        'memory.stat': `anon ${90 * MiB}\n`,
        'memory.current': String(90 * MiB),
      });
      await expect(update(50)).rejects.toMatchObject({ reason: 'MEMORY_NOT_RECLAIMABLE' });
      const { state, lastError, containers } = await info();
      expect(state).toBe('Deferred');
      expect(lastError).toMatchObject({
        reason: 'MEMORY_NOT_RECLAIMABLE',
        message: expect.stringContaining('52428800') as string,
      });
      expect(Date.parse(lastError?.time ?? '')).toBeGreaterThan(Date.now() - 60_000);
      expect(containers['c0']).toMatchObject({ desired: limitOf(50), actual: limitOf(100) });
      expect(containers['c0']).toMatchObject({ allocated: limitOf(100), actuated: limitOf(100) });
    });

    test('the pod info has the previous allocated values after a failed update is rolled back', async () => {
      await update(150);
      const failure = Object.assign(new Error('x'), { code: 13, details: 'runc failed', metadata: {} });
      await expect(update(250, failure)).rejects.toBe(failure);
      const { state, lastError, containers } = await info();
      expect(state).toBe('Infeasible');
      expect(lastError).toMatchObject({ reason: 'BACKEND_FAILED' });
      const four = { desired: limitOf(250), allocated: limitOf(150), actuated: limitOf(150), actual: limitOf(150) };
      expect(containers['c0']).toMatchObject(four);
      await update(160);
      expect(await info()).toMatchObject({ state: 'Completed', containers: { c0: { desired: limitOf(160) } } });
      expect(await info()).not.toHaveProperty('lastError');
    });

    test('the pod info has the values of UpdatePodSandboxResources and ResizePod, but not of a dry run', async () => {
      const request = encode('UpdatePodSandboxResourcesRequest', {
        pod_sandbox_id: SANDBOX,
        resources: { memory_limit_in_bytes: BigInt(400 * MiB) },
      });
      await updatePod(runtime.node, decode('UpdatePodSandboxResourcesRequest', request), () => Promise.resolve(ANSWER));
      const four = { desired: limitOf(400), allocated: limitOf(400), actuated: limitOf(400), actual: limitOf(400) };
      expect((await info()).pod).toMatchObject(four);
      const desired = { pod: {}, containers: new Map([['c1', { memory: bytes(250 * MiB) }]]), volumes: new Map() };
      const options = { deadline: performance.now() + 60_000 };
      await resizePod(runtime.node, SANDBOX, desired, { ...options, dryRun: true });
      expect((await info()).containers['c1']).toMatchObject({ desired: limitOf(200) });
      await resizePod(runtime.node, SANDBOX, desired, { ...options, dryRun: false });
      expect((await info()).containers['c1']).toMatchObject({ desired: limitOf(250), actuated: limitOf(250) });
    });

    test('the pod info lists invalid annotations', async () => {
      runtime.node.registry.learnPod({
        sandboxId: 'b'.repeat(64),
        metadata: { uid: 'uid-2', name: 'odd', namespace: 'default' },
        cgroupParent: '/kubepods/pod1',
        annotations: { 'volume.cri-resize-shim.io/cache': 'much' },
        cpuShares: undefined,
        overhead: { memoryBytes: 0, cpuQuotaMicroseconds: 0, cpuPeriodMicroseconds: 0 },
      });
      const { annotationErrors } = await podInfo(runtime.node, runtime.decreaseReclaimer, 'b'.repeat(64));
      expect(annotationErrors).toEqual([expect.stringContaining('volume.cri-resize-shim.io/cache: "much"')]);
    });

    test('the outcomes of removed containers and pods are dropped', async () => {
      await update(150);
      runtime.node.registry.forgetContainer(containerId(0));
      expect(runtime.node.outcomes.of(SANDBOX).desired.containers?.size).toBe(0);
      runtime.node.registry.forgetPod(SANDBOX);
      expect(runtime.node.outcomes.of(SANDBOX).state).toBeUndefined();
    });

    test('the pod info reports why a pod without a cgroup has no actual values', async () => {
      runtime.describePod({ config: { metadata: { name: 'x', uid: 'u', namespace: 'd' }, linux: {} } });
      runtime.node.registry.forgetPod(SANDBOX);
      expect((await info()).unreadable).toMatchObject({ reason: 'CGROUP_UNAVAILABLE' });
    });
  });

  describe('the error of a volume', () => {
    const tooFull = new ShimError(Code.FAILED_PRECONDITION, Reason.VOLUME_IN_USE, '24Mi are stored', {
      volume: 'cache',
    });
    const outcomes = (): PodOutcomes => {
      const made = new PodOutcomes();
      made.addPod(SANDBOX, []);
      return made;
    };

    test('the error of a volume that follows a limit ends with the next success of the pod', async () => {
      const made = outcomes();
      await expect(made.track(SANDBOX, () => Promise.reject(tooFull))).rejects.toBe(tooFull);
      expect(made.of(SANDBOX).volumeErrors.get('cache')?.reason).toBe('VOLUME_IN_USE');
      await made.track(SANDBOX, () => Promise.resolve());
      expect(made.of(SANDBOX)).toMatchObject({ state: 'Completed', lastError: undefined, volumeErrors: new Map() });
    });

    test('the error of a volume named in the request stays, since the volume still does not have the size', async () => {
      const made = outcomes();
      const failing = made.track(SANDBOX, () => {
        made.setDesired(SANDBOX, { volumes: new Map([['cache', { kind: 'follow' }]]) });
        return Promise.reject(tooFull);
      });
      await expect(failing).rejects.toBe(tooFull);
      await made.track(SANDBOX, () => Promise.resolve());
      expect(made.of(SANDBOX).volumeErrors.get('cache')?.reason).toBe('VOLUME_IN_USE');
    });
  });

  describe('a resize that later requests have replaced while it waited', () => {
    const superseded = new ShimError(Code.ABORTED, Reason.SUPERSEDED, 'superseded by an update of container c0');
    const stillDesired = (): never => {
      throw superseded;
    };
    const desired = { pod: {}, containers: new Map([['c0', { memory: bytes(120 * MiB) }]]), volumes: new Map() };
    const resize = () => resizePod(runtime.node, SANDBOX, desired, { dryRun: false, deadline: Infinity, stillDesired });

    test('a replaced resize leaves the outcome of the pod to the later request, and is not counted', async () => {
      await update(150);
      await expect(resize()).rejects.toBe(superseded);
      const { state, containers } = await info();
      expect(state).toBe('Completed');
      expect(await info()).not.toHaveProperty('lastError');
      expect(containers['c0']).toMatchObject({ desired: limitOf(150), actual: limitOf(150) });
      expect(runtime.counted.snapshot().resizes).toEqual({ 'Completed up': 1 });
    });

    test('a replaced resize keeps the error of the later request', async () => {
      const failure = Object.assign(new Error('x'), { code: 13, details: 'runc failed', metadata: {} });
      await expect(update(150, failure)).rejects.toBe(failure);
      await expect(resize()).rejects.toBe(superseded);
      expect(await info()).toMatchObject({ state: 'Infeasible', lastError: { reason: 'BACKEND_FAILED' } });
    });
  });

  describe('a resize whose rollback fails', () => {
    const deadline = performance.now() + 3_600_000;
    const raised = new Map([0, 1].map((index) => [`c${index}`, { memory: bytes(250 * MiB) }]));
    const both = { pod: {}, containers: raised, volumes: new Map() };
    const resize = () => resizePod(runtime.node, SANDBOX, both, { dryRun: false, deadline, waits: true });

    /** Makes the second update fail because its container ends, and prevents the rollback of the first one. */
    function breakRollback(): void {
      let updates = 0;
      runtime.wrapResponder('UpdateContainerResources', (request, obey) => {
        updates += 1;
        if (updates === 1) return obey(request);
        const exited = { metadata: { name: 'c1' }, state: ContainerState.CONTAINER_EXITED };
        runtime.describeContainer(containerId(1), exited);
        throw new RuntimeFailure(status.INTERNAL, 'no task');
      });
    }

    const left = {
      state: 'Infeasible',
      lastError: { reason: 'UNDO_FAILED', message: expect.stringContaining('no task') as string },
    };

    test.each(['works', 'cannot be written'])(
      'KEP-1287: a failed rollback stays UNDO_FAILED although its container has ended, if the journal %s',
      async (journal) => {
        const open = await runtime.journal;
        const write = open.write.bind(open);
        const full = new ShimError(Code.FAILED_PRECONDITION, Reason.JOURNAL_UNAVAILABLE, 'the disk is full');
        if (journal !== 'works')
          open.write = (record) => (record.transaction?.failed === undefined ? write(record) : Promise.reject(full));
        breakRollback();
        await expect(resize()).rejects.toMatchObject({ reason: 'UNDO_FAILED' });
        expect(await info()).toMatchObject(left);
      },
    );

    test('KEP-1287: a failed rollback is reported until the pod is recovered, even after later requests are rejected', async () => {
      breakRollback();
      await expect(resize()).rejects.toMatchObject({ reason: 'UNDO_FAILED' });
      await expect(update(-5)).rejects.toMatchObject({ reason: 'INVALID_VALUE' });
      await expect(resize()).rejects.toThrow();
      expect((await info()).lastError).toMatchObject(left.lastError);
      runtime.on('UpdateContainerResources');
      runtime.applyUpdates();
      await update(120);
      expect(await info()).toMatchObject({ state: 'Completed' });
      expect(await info()).not.toHaveProperty('lastError');
    });
  });
});

describe('the metrics of resizes', () => {
  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    runtime.applyUpdates();
    runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
  });

  const resizes = (): object => runtime.counted.snapshot().resizes;
  /** The values of a metric family, by label. */
  function counts(name: string): Record<string, number> {
    const family = runtime.counted.families.find(({ description }) => description.name === `cri_resize_shim_${name}`);
    const series = [...(family?.series() ?? [])];
    return Object.fromEntries(
      series.map((one) => [one.labels.join(' '), one.kind === 'number' ? one.value : one.count]),
    );
  }

  const update = (mebibytes: number, fails?: Error) =>
    updateContainer(
      runtime.node,
      containerUpdate(containerId(0), { memory_limit_in_bytes: BigInt(mebibytes * MiB) }),
      () => {
        if (fails !== undefined) return Promise.reject(fails);
        runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'memory.max', String(mebibytes * MiB));
        return Promise.resolve(Buffer.alloc(0));
      },
    );
  const memory = (mebibytes: number) => ({ memory: bytes(mebibytes * MiB) });
  const resize = (first: number, second: number, dryRun = false) =>
    resizePod(
      runtime.node,
      SANDBOX,
      {
        pod: {},
        containers: new Map([
          ['c0', memory(first)],
          ['c1', memory(second)],
        ]),
        volumes: new Map(),
      },
      { dryRun, deadline: Infinity },
    );

  test('resize metrics count requests by final state and direction', async () => {
    await update(150);
    await update(120);
    await update(120);
    await expect(update(-7)).rejects.toThrow();
    // 500,000 bytes of it cannot be reclaimed.
    await expect(
      updateContainer(runtime.node, containerUpdate(containerId(0), { memory_limit_in_bytes: 400_000n }), () =>
        Promise.resolve(Buffer.alloc(0)),
      ),
    ).rejects.toMatchObject({ reason: 'MEMORY_NOT_RECLAIMABLE' });
    expect(resizes()).toEqual({
      'Completed up': 1,
      'Completed down': 1,
      'Completed same': 1,
      'Infeasible unknown': 1,
      'Deferred down': 1,
    });
  });

  test('resize metrics count UpdatePodSandboxResources and ResizePod, but no dry run', async () => {
    const request = { pod_sandbox_id: SANDBOX, resources: { memory_limit_in_bytes: BigInt(400 * MiB) } };
    const asked = decode('UpdatePodSandboxResourcesRequest', encode('UpdatePodSandboxResourcesRequest', request));
    await updatePod(runtime.node, asked, () => Promise.resolve(Buffer.alloc(0)));
    expect(resizes()).toEqual({ 'Completed up': 1 });
    for (const index of [0, 1])
      runtime.node.registry.learnContainer({
        containerId: containerId(index),
        sandboxId: SANDBOX,
        name: `c${index}`,
      });
    await resize(110, 190, true);
    expect(resizes()).toEqual({ 'Completed up': 1 });
    await resize(110, 190);
    expect(resizes()).toEqual({ 'Completed up': 1, 'Completed both': 1 });
  });

  test('resize metrics measure the duration of steps and count rollbacks', async () => {
    await update(150);
    expect(counts('step_duration_seconds')).toEqual({ 'pod-memory': 1, runtime: 1 });
    expect(counts('undos_total')).toEqual({ undone: 0, failed: 0 });
    await expect(update(180, new Error('refused'))).rejects.toThrow('refused');
    expect(counts('undos_total')).toEqual({ undone: 1, failed: 0 });
    expect(runtime.read('memory.max')).toBe(String(350 * MiB));
  });

  test('resize metrics measure the duration of reclaim before a decrease, by its outcome', async () => {
    await update(50);
    expect(counts('reclaim_duration_seconds')).toMatchObject({ done: expect.any(Number) as number });
    expect(counts('oom_kills_total')).toEqual({ '': 0 });
  });
});
