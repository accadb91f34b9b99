import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { PodDescription } from '../../../src/runtime/description.ts';
import type { Requester } from '../../../src/sandbox/history/history-entry.ts';
import { unavailable } from '../../../src/sandbox/journal/availability.ts';
import { applyContainerShares, applyVolumeSizes } from '../../../src/sandbox/operations/pod-volumes.ts';
import { StepSkipped } from '../../../src/sandbox/plan/failures.ts';
import type { Step } from '../../../src/sandbox/plan/step.ts';
import type { PodState } from '../../../src/sandbox/pods/pod-state.ts';
import { NO_CPU_LIMIT } from '../../../src/sandbox/pods/read-pod.ts';
import { PodActions } from '../../../src/sandbox/transaction/actions.ts';
import { progressOf } from '../../../src/sandbox/transaction/step-progress.ts';
import { GROW_DELAY_MS, RETRY_DELAY_MS } from '../../../src/sandbox/volumes/growth-timers.ts';
import { CREATED, EXITED, FakeDeclaringRuntime } from '../../support/fake-declaring-runtime.ts';
import { FakeRuntime, RuntimeFailure, SANDBOX } from '../../support/fake-runtime.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

let pod: PodDescription;

describe('volumes and creations of containers', () => {
  const MOUNTED = 160;

  let declaring: FakeDeclaringRuntime;
  let size: number;
  let used: number;

  beforeEach(async () => {
    declaring = await FakeDeclaringRuntime.start();
    const { runtime } = declaring;
    // The pod's cgroup, and no container.
    runtime.makePod(String(MOUNTED * MiB), []);
    const { volumes, registry, policies } = runtime.node;
    [size, used] = [MOUNTED, 0];
    const cache = { podUid: 'uid-1', name: 'cache', device: '0:50' };
    const measured = () => ({ size: bytes(size * MiB), used: bytes(used * MiB), pageSize: 4096 });
    vi.spyOn(volumes, 'ofPod').mockImplementation(() => [cache as never]);
    vi.spyOn(volumes, 'measure').mockImplementation(() => measured() as never);
    vi.spyOn(volumes, 'remount').mockImplementation((_, to) => {
      const before = measured();
      size = to / MiB;
      return Promise.resolve({ outcome: 'remounted', before, after: measured() } as never);
    });
    pod = (await registry.pod(SANDBOX))!;
    policies.annotate(SANDBOX, { 'volume.cri-resize-shim.io/cache': '50%/a' });
  });

  afterEach(() => declaring.close());

  /** Returns the size of the volume, in mebibytes, after its rule was applied. */
  const applied = async (): Promise<number> => {
    await applyVolumeSizes(declaring.runtime.node, pod);
    return size;
  };

  describe("a volume of half a container's limit", () => {
    test("sizes a volume to half the limit in kubelet's state when the pod starts without containers", async () => {
      declaring.has();
      declaring.kubeletAdmitted({ a: 96 });
      expect(await applied()).toBe(48);
    });

    test('sizes a volume to half the limit that the runtime stores when the container is created', async () => {
      declaring.has();
      expect(await applied()).toBe(MOUNTED);
      declaring.has({ name: 'a', state: CREATED, limit: 96 });
      expect(await applied()).toBe(48);
    });

    test('sizes a volume to half the limit of the next container after RestartContainer', async () => {
      declaring.has({ name: 'a', state: EXITED, limit: 96, exitCode: 137 }, { name: 'a', state: CREATED, limit: 64 });
      expect(await applied()).toBe(32);
    });

    test('does not resize a volume if its container has no limit or is unknown', async () => {
      declaring.has({ name: 'a', state: CREATED });
      expect(await applied()).toBe(MOUNTED);
      declaring.has({ name: 'b', state: CREATED, limit: 64 });
      expect(await applied()).toBe(MOUNTED);
    });
  });

  describe('KEP-6030: a volume that kubelet begins to resize itself', () => {
    const step: Step = { kind: 'volume', volume: 'cache', from: bytes(MOUNTED * MiB), to: bytes(48 * MiB) };
    /** kubelet is restarted with its feature gate. */
    const takeOver = (): void => {
      const entry = { containers: new Map(), pod: undefined, isComplete: true, volumes: new Set(['cache']) };
      declaring.runtime.allocated.set('uid-1', entry);
    };

    test('a volume that kubelet resizes is not resized, also if its checkpoint could not be read before', async () => {
      declaring.has({ name: 'a', state: CREATED, limit: 96 });
      const { kubelet } = declaring.runtime.node;
      vi.spyOn(kubelet, 'refreshed').mockImplementation(() => Promise.resolve().then(takeOver));
      expect(await applied()).toBe(MOUNTED);
    });

    test('a volume that kubelet takes over in the middle of a resize is skipped, or refused if the resize names it', async () => {
      const { node } = declaring.runtime;
      takeOver();
      await expect(new PodActions(node, pod, { updates: [] }).apply(step)).rejects.toBeInstanceOf(StepSkipped);
      const requested = new PodActions(node, pod, { updates: [], requested: new Set(['cache']) });
      await expect(requested.apply(step)).rejects.toMatchObject({ reason: 'VOLUME_RESIZED_BY_KUBELET' });
      await requested.rollBack(step);
      expect(size).toBe(MOUNTED);
    });

    test('a volume that kubelet takes over after the shim has resized it is not rolled back', async () => {
      const { node } = declaring.runtime;
      const actions = new PodActions(node, pod, { updates: [] });
      await actions.apply(step);
      takeOver();
      await actions.rollBack(step);
      expect(size).toBe(48);
      const at = (mebibytes: number): PodState => ({
        ...({
          memory: 'max',
          cpu: NO_CPU_LIMIT,
          weight: undefined,
          overhead: { memory: bytes(0), cpu: NO_CPU_LIMIT },
          containers: [],
        } as const),
        volumes: [{ name: 'cache', size: bytes(mebibytes * MiB) }],
      });
      expect(await progressOf(node, pod, at(48), step)).toEqual({ written: undefined, isComplete: true });
      expect(await progressOf(node, pod, at(MOUNTED), step)).toEqual({ written: undefined, isComplete: false });
    });
  });

  test('KEP-6030: a volume that stores too much to shrink is tried again until it fits or the pod is gone', async () => {
    const { growth, history, registry } = declaring.runtime.node;
    const restart = vi.spyOn(growth, 'restart');
    /** Runs the function of the last timer, as the timer does. */
    const expire = (): void => {
      growth.stop(SANDBOX);
      restart.mock.lastCall?.[1]({ kind: 'shim' });
    };
    declaring.has({ name: 'a', state: CREATED, limit: 96 });
    used = 100;
    expect(await applied()).toBe(MOUNTED);
    expect(restart).toHaveBeenLastCalledWith(SANDBOX, expect.any(Function), {
      requester: { kind: 'shim' },
      delayMs: RETRY_DELAY_MS,
    });
    expect(history.ofPod(SANDBOX)).toMatchObject([{ state: 'Deferred', reason: 'VOLUME_IN_USE' }]);
    expire();
    await expect.poll(() => growth.isRunning(SANDBOX), LONG_WAIT).toBe(true);
    expect(history.ofPod(SANDBOX)).toMatchObject([{ state: 'Deferred', count: 2 }]);
    used = 0;
    expire();
    await expect.poll(() => size, LONG_WAIT).toBe(48);
    await expect.poll(() => history.ofPod(SANDBOX), LONG_WAIT).toMatchObject([{ state: 'Completed' }, { count: 2 }]);
    expect(growth.isRunning(SANDBOX)).toBe(false);
    [size, used] = [MOUNTED, 100];
    registry.forgetPod(SANDBOX);
    await applied();
    expect(growth.isRunning(SANDBOX)).toBe(false);
  });

  test('a resize of volumes that the runtime or the disk prevents is tried again', async () => {
    const { growth, journal } = declaring.runtime.node;
    declaring.has({ name: 'a', state: CREATED, limit: 96 });
    vi.spyOn(journal, 'begin').mockRejectedValueOnce(unavailable(new Error('ENOSPC'), '/state'));
    expect([await applied(), growth.isRunning(SANDBOX)]).toEqual([MOUNTED, true]);
    growth.stop(SANDBOX);
    declaring.runtime.on('ListContainers', () => {
      throw new RuntimeFailure(status.UNAVAILABLE, 'containerd is restarting');
    });
    expect([await applied(), growth.isRunning(SANDBOX)]).toEqual([MOUNTED, true]);
  });

  test('a timer that replaces that of a changed spec keeps its requester', () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const { growth } = declaring.runtime.node;
    const requesters: string[] = [];
    const resize = ({ kind }: Requester): void => void requesters.push(kind);
    const spec = { requester: { kind: 'spec' }, delayMs: RETRY_DELAY_MS } as const;
    growth.start(SANDBOX, resize, spec);
    growth.restart(SANDBOX, resize);
    vi.advanceTimersByTime(GROW_DELAY_MS);
    growth.restart(SANDBOX, resize);
    growth.start(SANDBOX, resize, spec);
    vi.advanceTimersByTime(GROW_DELAY_MS);
    growth.restart(SANDBOX, resize);
    vi.advanceTimersByTime(GROW_DELAY_MS);
    expect(requesters).toEqual(['spec', 'spec', 'shim']);
    expect(growth.isRunning(SANDBOX)).toBe(false);
  });

  test('the volumes of a pod are not resized by the policies of a sandbox that another one has replaced', async () => {
    declaring.has({ name: 'a', state: CREATED, limit: 96 });
    const metadata = { ...pod.metadata, attempt: 1 };
    declaring.runtime.node.registry.learnPod({ ...pod, sandboxId: 'b'.repeat(64), metadata });
    expect(await applied()).toBe(MOUNTED);
  });

  test('the creation of a container sets the volume of its share at once, and only a restart repeats it later', async () => {
    const { node } = declaring.runtime;
    const created = (id: string): void =>
      node.registry.learnContainer({ containerId: id, sandboxId: SANDBOX, name: 'a' });
    declaring.has({ name: 'a', state: CREATED, limit: 96 });
    created('a-0');
    await applyContainerShares(node, pod, 'b');
    expect(size).toBe(MOUNTED);
    await applyContainerShares(node, pod, 'a');
    expect([size, node.growth.isRunning(SANDBOX)]).toEqual([48, false]);
    declaring.has({ name: 'a', state: EXITED, limit: 96, exitCode: 137 }, { name: 'a', state: CREATED, limit: 64 });
    created('a-1');
    await applyContainerShares(node, pod, 'a');
    expect([size, node.growth.isRunning(SANDBOX)]).toEqual([32, true]);
  });
});

describe('records of volumes', () => {
  const NEXT = 'b'.repeat(64);

  let runtime: FakeRuntime;

  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    pod = (await runtime.node.registry.pod(SANDBOX))!;
  });

  afterEach(() => runtime.close());

  /** Returns sandbox and deferred requests of each record on the disk. */
  const records = (): unknown[] =>
    readdirSync(runtime.stateFolder)
      .filter((name) => name.endsWith('.json'))
      .map((name) => JSON.parse(readFileSync(join(runtime.stateFolder, name), 'utf8')) as Record<string, unknown>)
      .map(({ sandboxId, resizes }) => [sandboxId, resizes]);

  /** Stores a deferred request, and completes a transaction meanwhile, which puts the sandbox into the record. */
  async function deferAndResize({ sandboxId, metadata }: PodDescription): Promise<void> {
    const { journal } = runtime.node;
    await journal.setResizes(metadata.uid === '' ? sandboxId : metadata.uid, ['a request']);
    const described = { ...pod, sandboxId, metadata };
    const step = { kind: 'pod-memory', from: bytes(300 * MiB), to: bytes(400 * MiB) } as const;
    await (await journal.begin(described, [step], { volumes: new Map() })).end('done', new Map());
  }

  test('the record of a pod stays when kubelet removes a replaced sandbox, and is removed with the last sandbox', async () => {
    const { registry } = runtime.node;
    await deferAndResize(pod);
    registry.learnPod({ ...pod, sandboxId: NEXT, metadata: { ...pod.metadata, attempt: 1 } });
    registry.forgetPod(SANDBOX);
    await expect.poll(records, LONG_WAIT).toEqual([[NEXT, ['a request']]]);
    registry.forgetPod(NEXT);
    await expect.poll(records, LONG_WAIT).toEqual([]);
  });

  test('the record of a pod without a uid is removed with its sandbox, although other pods have no uid either', async () => {
    const { registry } = runtime.node;
    const metadata = { ...pod.metadata, uid: '' };
    for (const sandboxId of ['c'.repeat(64), 'd'.repeat(64)]) registry.learnPod({ ...pod, sandboxId, metadata });
    await deferAndResize({ ...pod, sandboxId: 'c'.repeat(64), metadata });
    expect(records()).toHaveLength(1);
    registry.forgetPod('c'.repeat(64));
    await expect.poll(records, LONG_WAIT).toEqual([]);
  });

  test('a new pod without memory-backed volumes costs no read of its limits', () => {
    const { registry, tree } = runtime.node;
    const reads = [vi.spyOn(tree, 'readLimitsNow'), vi.spyOn(tree, 'readMemoryMax')];
    registry.learnPod({ ...pod, sandboxId: NEXT });
    for (const read of reads) expect(read).not.toHaveBeenCalled();
  });
});
