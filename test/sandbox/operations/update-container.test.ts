import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { ShimError } from '../../../src/core/errors.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { runtimePath } from '../../../src/runtime/backend.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import { criRequester } from '../../../src/sandbox/history/history-entry.ts';
import { scheduleVolumeGrowth } from '../../../src/sandbox/operations/pod-volumes.ts';
import { resizePod } from '../../../src/sandbox/operations/resize-pod.ts';
import { updateContainer } from '../../../src/sandbox/operations/update-container.ts';
import { updatePod } from '../../../src/sandbox/operations/update-pod.ts';
import type { DesiredPod } from '../../../src/sandbox/plan/resize-request.ts';
import {
  containerId,
  containerUpdate,
  FakeRuntime,
  podConfig,
  RuntimeFailure,
  SANDBOX,
} from '../../support/fake-runtime.ts';
import { FakeStoringRuntime } from '../../support/fake-storing-runtime.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';
import { outOfTime } from '../../support/out-of-time.ts';
import { criMi } from '../../support/quantities/mebibytes.ts';
import { ANSWER, ContainerUpdates } from '../../support/resize/resized-pod.ts';

let runtime: FakeRuntime;
let updates: ContainerUpdates;

afterEach(() => runtime.close());

describe('update of one container', () => {
  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    updates = new ContainerUpdates(runtime);
  });

  describe('UpdateContainerResources', () => {
    const applyAndFail = () => {
      const limits = { 'memory.max': String(150 * MiB), 'cpu.max': '10000 100000' };
      runtime.writeCgroup(`/kubepods/pod1/${containerId(0)}`, limits);
      return Promise.reject(new Error('deadline exceeded'));
    };

    test("raises the pod limit before it calls the runtime, and returns the runtime's response", async () => {
      runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
      let atCall = '';
      const answer = await updates.update(150 * MiB, () => {
        atCall = runtime.read('memory.max');
        return updates.applies(150 * MiB);
      });
      expect(answer).toBe(ANSWER);
      expect(atCall).toBe(String(350 * MiB));
    });

    test('lowers the pod limit after the runtime has responded', async () => {
      runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
      let atCall = '';
      await updates.update(50 * MiB, () => {
        atCall = runtime.read('memory.max');
        return updates.applies(50 * MiB);
      });
      expect(atCall).toBe(String(300 * MiB));
      expect(runtime.read('memory.max')).toBe(String(250 * MiB));
    });

    test('returns the error of a failing runtime, and restores the pod', async () => {
      runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
      const failure = new Error('runc update failed');
      await expect(updates.update(150 * MiB, () => Promise.reject(failure))).rejects.toBe(failure);
      expect(runtime.read('memory.max')).toBe(String(300 * MiB));
    });

    test('restores the container and the pod when the runtime fails after it has raised the container', async () => {
      runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
      runtime.applyUpdates();
      await expect(updates.update(150 * MiB, applyAndFail)).rejects.toThrow('deadline exceeded');
      expect(runtime.limitOf(0)).toBe(100 * MiB);
      expect(runtime.read('memory.max')).toBe(String(300 * MiB));
    });

    test('keeps the pod limit raised when the runtime fails to restore the container', async () => {
      runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
      await expect(updates.update(150 * MiB, applyAndFail)).rejects.toThrow('deadline');
      expect(runtime.read('memory.max')).toBe(String(350 * MiB));
    });

    test('A4: keeps the pod limit raised for a declared container that is not created yet', async () => {
      runtime.makePod(String(300 * MiB), [100 * MiB]);
      const limits = { 'cpu.max': '10000 100000', 'cpu.weight': '4' };
      runtime.writeCgroup('/kubepods/pod1', { ...limits, 'memory.max': String(300 * MiB) });
      runtime.node.registry.learnContainer({ containerId: containerId(0), sandboxId: SANDBOX, name: 'c0' });
      const containers = new Map([
        ['c0', { memory: bytes(100 * MiB) }],
        ['c1', { memory: bytes(200 * MiB) }],
      ]);
      runtime.allocated.set('uid-1', { containers, pod: undefined, isComplete: true });
      await expect(updates.update(150 * MiB, applyAndFail)).rejects.toThrow('deadline');
      expect(runtime.read('memory.max')).toBe(String(350 * MiB));
    });

    test('rejects a limit below unreclaimable memory with the figures, and does not call the runtime', async () => {
      runtime.makePod(String(100 * MiB), [100 * MiB]);
      runtime.writeCgroup(`/kubepods/pod1/${containerId(0)}`, {
        'memory.max': String(100 * MiB),
        'cpu.max': '10000 100000',
        'memory.stat': `anon ${40 * MiB}\nshmem ${10 * MiB}\nunevictable 0\n`,
        'memory.current': String(50 * MiB),
      });
      let called = false;
      const rejected = updates.update(50 * MiB, () => {
        called = true;
        return Promise.resolve(ANSWER);
      });
      await expect(rejected).rejects.toMatchObject({
        code: 9,
        reason: 'MEMORY_NOT_RECLAIMABLE',
        context: { container: 'c0', pod: 'default/web', asked: String(50 * MiB), found: String(50 * MiB) },
      });
      expect(called).toBe(false);
      expect(runtime.read('memory.max')).toBe(String(100 * MiB));
    });

    test('KEP-1287: if the usage of the pod forbids it, an update of a container does not lower the pod limit, with a warning', async () => {
      runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
      runtime.writeCgroup('/kubepods/pod1', {
        'memory.max': String(300 * MiB),
        'cpu.max': '20000 100000',
        'memory.stat': `anon ${260 * MiB}\nshmem 0\nunevictable 0\n`,
        'memory.current': String(260 * MiB),
      });
      expect(await updates.update(50 * MiB)).toBe(ANSWER);
      expect(runtime.read('memory.max')).toBe(String(300 * MiB));
      expect(runtime.warnings).toMatchObject([{ pod: SANDBOX, asked: 250 * MiB, unreclaimable: 260 * MiB }]);
    });

    test('runs two updates of one pod one after the other', async () => {
      runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
      const seen: string[] = [];
      const slowly = (index: number, memory: number) => async () => {
        seen.push(`begin ${index}`);
        await new Promise(setImmediate);
        runtime.writeCgroup(`/kubepods/pod1/${containerId(index)}`, {
          'memory.max': String(memory),
          'cpu.max': '10000 100000',
        });
        seen.push(`end ${index}`);
        return ANSWER;
      };
      await Promise.all([
        updates.update(150 * MiB, slowly(0, 150 * MiB), containerId(0)),
        updates.update(250 * MiB, slowly(1, 250 * MiB), containerId(1)),
      ]);
      expect(seen).toHaveLength(4);
      expect(seen[0]?.replace('begin', 'end')).toBe(seen[1]);
      expect(runtime.read('memory.max')).toBe(String(400 * MiB));
    });

    test('A12: reads the state of a container when it has the lock of the pod, not when the request arrives', async () => {
      runtime.makePod(String(100 * MiB), [100 * MiB]);
      runtime.node.registry.learnContainer({ containerId: containerId(0), sandboxId: SANDBOX, name: 'c0' });
      const cgroup = `/kubepods/pod1/${containerId(0)}`;
      let state = 0;
      runtime.wrapResponder('ContainerStatus', async (request, before) => {
        const status = { id: containerId(0), metadata: { name: 'c0' }, state };
        return Buffer.concat([await before(request), encode('ContainerStatusResponse', { status })]);
      });
      let free = (): void => undefined;
      const held = new Promise<void>((resolve) => (free = resolve));
      const holder = runtime.node.lock.run(podConfig.metadata.uid, () => held);
      let called = false;
      const lowered = updates.update(50 * MiB, () => {
        called = true;
        return Promise.resolve(ANSWER);
      });
      // The request arrives while the container is created. It runs and uses 90 MiB when the lock is free.
      state = 1;
      runtime.writeFile(cgroup, 'memory.stat', `anon ${90 * MiB}\nshmem 0\nunevictable 0\n`);
      runtime.writeFile(cgroup, 'memory.current', String(90 * MiB));
      while (runtime.node.lock.waiting(podConfig.metadata.uid) === 0) await new Promise(setImmediate);
      free();
      await holder;
      await expect(lowered).rejects.toMatchObject({ reason: 'MEMORY_NOT_RECLAIMABLE' });
      expect(called).toBe(false);
    });

    test('rejects a limit that usage has exceeded while another update of the container was running', async () => {
      runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
      const ended = Promise.withResolvers<undefined>();
      const other = runtime.node.calls.run(containerId(0), () => ended.promise);
      let called = false;
      const lowered = updates.update(50 * MiB, () => {
        called = true;
        return updates.applies(50 * MiB);
      });
      await vi.waitFor(() => expect(runtime.node.calls.waiting(containerId(0))).toBe(1), LONG_WAIT);
      const cgroup = `/kubepods/pod1/${containerId(0)}`;
      runtime.writeFile(cgroup, 'memory.stat', `anon ${80 * MiB}\nshmem 0\nunevictable 0\n`);
      runtime.writeFile(cgroup, 'memory.current', String(80 * MiB));
      ended.resolve(undefined);
      await other;
      await expect(lowered).rejects.toMatchObject({ reason: 'MEMORY_NOT_RECLAIMABLE' });
      expect([called, runtime.limitOf(0), runtime.read('memory.max')]).toEqual([false, 100 * MiB, String(300 * MiB)]);
    });

    test('rejects an invalid value', async () => {
      runtime.makePod(String(100 * MiB), [100 * MiB]);
      await expect(updates.update(-7)).rejects.toMatchObject({ code: 3, reason: 'INVALID_VALUE' });
    });
  });

  describe('memory decrease without a journal record, which must not leave a lowered memory.high after a crash', () => {
    /** Makes the pod's only container use 48 MiB, most of it page cache. Returns the values written to memory.high. */
    function use(cgroup: string): string[] {
      runtime.writeCgroup(cgroup, {
        'memory.max': String(100 * MiB),
        'cpu.max': 'max 100000',
        'cpu.weight': '4',
        'memory.stat': `anon ${8 * MiB}\nshmem 0\nunevictable 0\nfile ${40 * MiB}`,
        'memory.current': String(48 * MiB),
      });
      const highs: string[] = [];
      const { tree } = runtime.node;
      const write = tree.write.bind(tree);
      vi.spyOn(tree, 'write').mockImplementation((path, change) => {
        if (change.file === 'memory.high') highs.push(`${path} ${change.value}`);
        return write(path, change);
      });
      return highs;
    }

    test('a decrease in a pod without a cgroup of its own does not change memory.high', async () => {
      runtime.describePod({ config: { ...podConfig, linux: { resources: {} } } });
      runtime.makePod('max', [100 * MiB]);
      const highs = use(`/kubepods/pod1/${containerId(0)}`);
      expect(await updates.update(50 * MiB)).toBe(ANSWER);
      expect([highs, runtime.limitOf(0)]).toEqual([[], 50 * MiB]);
    });

    test("a decrease of a container whose cgroup is outside the pod's cgroup does not change memory.high", async () => {
      runtime.makePod('max', [100 * MiB]);
      runtime.removeCgroup(`/kubepods/pod1/${containerId(0)}`);
      const cgroup = `/other/${containerId(0)}`;
      writeFileSync(join(runtime.procRoot, '100/cgroup'), `0::${cgroup}\n`);
      const highs = use(cgroup);
      const applies = (): Promise<Buffer> => {
        runtime.writeFile(cgroup, 'memory.max', String(50 * MiB));
        return Promise.resolve(ANSWER);
      };
      expect(await updates.update(50 * MiB, applies)).toBe(ANSWER);
      expect(highs).toEqual([]);
    });
  });

  describe('an update whose deadline has passed', () => {
    const request = containerUpdate(containerId(0), { memory_limit_in_bytes: BigInt(150 * MiB) });

    test('an update whose deadline passes while it waits for the lock of the pod changes nothing', async () => {
      runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
      const write = vi.spyOn(runtime.node.tree, 'write');
      const ended = Promise.withResolvers<undefined>();
      const holder = runtime.node.lock.run(podConfig.metadata.uid, () => ended.promise);
      const forward = vi.fn(() => updates.applies(150 * MiB));
      const late = updateContainer(runtime.node, request, forward, { deadline: performance.now() });
      await vi.waitFor(() => expect(runtime.node.lock.waiting(podConfig.metadata.uid)).toBe(1), LONG_WAIT);
      ended.resolve(undefined);
      await holder;
      await expect(late).rejects.toMatchObject({ code: status.DEADLINE_EXCEEDED, reason: 'DEADLINE' });
      expect([write.mock.calls, forward.mock.calls]).toEqual([[], []]);
    });

    test('an update whose deadline passes while it waits for another update of the container changes nothing', async () => {
      runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
      const ended = Promise.withResolvers<undefined>();
      const holder = runtime.node.calls.run(containerId(0), () => ended.promise);
      const forward = vi.fn(() => updates.applies(150 * MiB));
      const late = updateContainer(runtime.node, request, forward, { deadline: performance.now() + 300 });
      await expect(late).rejects.toMatchObject({ code: status.DEADLINE_EXCEEDED, reason: 'DEADLINE' });
      ended.resolve(undefined);
      await holder;
      expect([runtime.read('memory.max'), runtime.limitOf(0), forward.mock.calls]).toEqual([
        String(300 * MiB),
        100 * MiB,
        [],
      ]);
      const pod = (await runtime.node.registry.pod(SANDBOX))!;
      expect(runtime.node.journal.transactionOf(pod)).toBeUndefined();
    });

    test('an update whose deadline passes before it is sent to the runtime restores the pod limit', async () => {
      runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
      let atCall = '';
      const late = updates.update(150 * MiB, () => {
        atCall = runtime.read('memory.max');
        const options = { deadline: performance.now() - 1 };
        return runtime.backend.call(runtimePath('UpdateContainerResources'), Buffer.alloc(0), options);
      });
      await expect(late).rejects.toMatchObject({ code: status.DEADLINE_EXCEEDED });
      expect([atCall, runtime.read('memory.max')]).toEqual([String(350 * MiB), String(300 * MiB)]);
      const pod = (await runtime.node.registry.pod(SANDBOX))!;
      expect(runtime.node.journal.transactionOf(pod)).toBeUndefined();
      expect(runtime.calls).not.toContain('UpdateContainerResources');
    });
  });

  describe('a runtime deadline that passes in the middle of an update', () => {
    const late = () => new RuntimeFailure(status.DEADLINE_EXCEEDED, 'context deadline exceeded');
    const container = `/kubepods/pod1/${containerId(0)}`;

    beforeEach(() => {
      runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
      runtime.applyUpdates();
    });

    test('rolls back the container and the pod when the runtime exceeds its deadline in the middle of an update', async () => {
      const both = { memory_limit_in_bytes: BigInt(150 * MiB), cpu_quota: 30_000n, cpu_period: 100_000n };
      const update = updateContainer(runtime.node, containerUpdate(containerId(0), both), () => {
        runtime.writeFile(container, 'memory.max', String(150 * MiB));
        return Promise.reject(late());
      });
      await expect(update).rejects.toMatchObject({ code: 4 });
      expect([runtime.limitOf(0), runtime.read('memory.max')]).toEqual([100 * MiB, String(300 * MiB)]);
      expect(runtime.read('cpu.max')).toBe('20000 100000');
      expect(runtime.warnings).toMatchObject([{ container: containerId(0), found: String(150 * MiB) }]);
    });
  });

  test('a due volume growth that waits for the lock is skipped if the lock holder schedules it again', async () => {
    runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    const { node } = runtime;
    const pod = await node.registry.pod(SANDBOX);
    const due: (() => void)[] = [];
    const timers = vi.spyOn(globalThis, 'setTimeout').mockImplementation((action: () => void) => {
      due.push(action);
      return setImmediate(() => undefined) as never;
    });
    const read = vi.spyOn(node.volumes, 'ofPod');
    scheduleVolumeGrowth(node, pod!, false);
    await node.lock.run(podConfig.metadata.uid, () => {
      due[0]?.();
      scheduleVolumeGrowth(node, pod!, false);
      return Promise.resolve();
    });
    timers.mockRestore();
    await node.lock.run(podConfig.metadata.uid, () => Promise.resolve());
    expect(read).not.toHaveBeenCalled();
    due[1]?.();
    await node.lock.run(podConfig.metadata.uid, () => Promise.resolve());
    expect(read).toHaveBeenCalled();
  });
});

describe('forwarding of UpdateContainerResources', () => {
  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    updates = new ContainerUpdates(runtime);
  });

  describe('fail-open of UpdateContainerResources', () => {
    test('forwards an update of a container that the runtime does not know', async () => {
      runtime.makePod(String(200 * MiB), [100 * MiB]);
      expect(await updates.update(50 * MiB, undefined, containerId(7))).toBe(ANSWER);
      expect(runtime.failOpens).toEqual(['unknown_pod']);
    });

    test("forwards an update if the runtime's status has no description of the pod", async () => {
      runtime.makePod(String(100 * MiB), [100 * MiB]);
      runtime.describePod({ strange: true });
      expect(await updates.update(50 * MiB)).toBe(ANSWER);
      expect(runtime.failOpens).toEqual(['unknown_pod']);
      expect(runtime.read('memory.max')).toBe(String(100 * MiB));
    });

    test('forwards an update if the memory.max of the pod does not exist', async () => {
      runtime.makePod(String(100 * MiB), [100 * MiB]);
      rmSync(join(runtime.cgroupRoot, 'kubepods/pod1/memory.max'));
      expect(await updates.update(50 * MiB)).toBe(ANSWER);
      expect(runtime.failOpens).toEqual(['unreadable_state']);
    });

    test('forwards an update if the memory.max of the pod has unexpected content', async () => {
      runtime.makePod('a lot', [100 * MiB]);
      expect(await updates.update(50 * MiB)).toBe(ANSWER);
      expect(runtime.failOpens).toEqual(['unreadable_state']);
    });

    test('forwards an update if the cgroup parent of the pod contains ..', async () => {
      runtime.makePod(String(100 * MiB), [100 * MiB]);
      runtime.describePod({ config: { ...podConfig, linux: { cgroup_parent: '/kubepods/../../etc' } } });
      expect(await updates.update(50 * MiB)).toBe(ANSWER);
      expect(runtime.failOpens).toEqual(['unreadable_state']);
    });

    test('forwards an update if the runtime fails to describe the container', async () => {
      runtime.makePod(String(100 * MiB), [100 * MiB]);
      runtime.on('ContainerStatus', () => {
        throw new RuntimeFailure(status.INTERNAL, 'database is damaged');
      });
      expect(await updates.update(50 * MiB)).toBe(ANSWER);
      expect(runtime.failOpens).toEqual(['unknown_pod']);
    });

    test('counts each forwarded request, and logs it once for each container and reason', async () => {
      runtime.makePod('a lot', [100 * MiB]);
      await updates.update(50 * MiB);
      await updates.update(60 * MiB);
      expect(runtime.failOpens).toHaveLength(2);
      expect(runtime.warnings).toHaveLength(1);
      expect(runtime.warnings[0]).toMatchObject({ reason: 'unreadable_state', id: containerId(0) });
    });
  });

  /** An update that is forwarded later would be applied without an order: containers could exceed their pod. */
  describe.each([
    ['does not serve calls yet', new RuntimeFailure(status.UNKNOWN, 'server is not initialized yet')],
    ['has gone', new RuntimeFailure(status.UNAVAILABLE, 'error reading from server: EOF')],
    ['does not answer in time', new RuntimeFailure(status.DEADLINE_EXCEEDED, 'context deadline exceeded')],
  ])('UpdateContainerResources is not forwarded to a runtime that %s', (_what, failure) => {
    test.each([
      ['a known', true],
      ['an unknown', false],
    ])(
      "KEP-1287: an update of %s container is not forwarded to an unavailable runtime, and fails with the runtime's error",
      async (_known, isKnown) => {
        runtime.makePod(String(100 * MiB), [100 * MiB]);
        if (isKnown) {
          await runtime.node.registry.pod(SANDBOX);
          runtime.node.registry.learnContainer({ containerId: containerId(0), sandboxId: SANDBOX, name: 'c0' });
        }
        runtime.on('ContainerStatus', () => {
          throw failure;
        });
        await expect(updates.update(150 * MiB)).rejects.toMatchObject({ code: failure.code });
        expect(runtime.limitOf(0)).toBe(100 * MiB);
        expect(runtime.failOpens).toEqual([]);
      },
    );
  });
});

describe('history of updates', () => {
  const requester = criRequester({ pid: 4711, name: 'crictl' });

  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    runtime.applyUpdates();
    runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    [0, 1].forEach((index) =>
      runtime.node.registry.learnContainer({ containerId: containerId(index), sandboxId: SANDBOX, name: `c${index}` }),
    );
  });

  const update = (memory: number, fails?: Error) =>
    updateContainer(
      runtime.node,
      containerUpdate(containerId(0), { memory_limit_in_bytes: BigInt(memory * MiB) }),
      () => {
        if (fails !== undefined) return Promise.reject(fails);
        runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'memory.max', String(memory * MiB));
        return Promise.resolve(Buffer.alloc(0));
      },
      { requester },
    );

  const newest = () => runtime.node.history.ofPod(SANDBOX).at(0);

  describe('history of updates by a CRI client', () => {
    test('records an update with the changes of the container and of the pod limit that follows it', async () => {
      await update(150);
      expect(newest()).toMatchObject({ requester, state: 'Completed', reason: undefined });
      expect(newest()?.changes).toEqual([
        { value: 'pod memory', from: '300Mi', to: '350Mi' },
        { value: 'container c0 memory', from: '100Mi', to: '150Mi' },
      ]);
    });

    test('records an update that is rejected for memory in use, and the next successful one as the newest', async () => {
      runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'memory.current', String(90 * MiB));
      runtime.writeFile(
        `/kubepods/pod1/${containerId(0)}`,
        'memory.stat',
        `anon ${90 * MiB}\nshmem 0\nunevictable 0\n`,
      );
      await expect(update(50)).rejects.toMatchObject({ reason: 'MEMORY_NOT_RECLAIMABLE' });
      expect(newest()).toMatchObject({ state: 'Infeasible', reason: 'MEMORY_NOT_RECLAIMABLE', isRolledBack: false });
      expect(newest()?.changes).toEqual([{ value: 'container c0 memory', from: '100Mi', to: '50Mi' }]);
      await update(150);
      expect(newest()).toMatchObject({ state: 'Completed', reason: undefined });
    });

    test('records an invalid update', async () => {
      await expect(update(-7)).rejects.toMatchObject({ reason: 'INVALID_VALUE' });
      expect(newest()).toMatchObject({ requester, state: 'Infeasible', reason: 'INVALID_VALUE', changes: [] });
    });

    test('records an update that fails in the runtime, with the rollback of the pod limit', async () => {
      await expect(update(150, new Error('no'))).rejects.toThrow('no');
      expect(newest()).toMatchObject({ state: 'Infeasible', isRolledBack: true });
      expect(newest()?.changes).toContainEqual({ value: 'container c0 memory', from: '100Mi', to: '150Mi' });
    });

    test('records an update that a newer one supersedes while it waits', async () => {
      const release = Promise.withResolvers<undefined>();
      const held = runtime.node.lock.run(podConfig.metadata.uid, () => release.promise);
      const both = [update(150), update(160)];
      await expect.poll(() => runtime.node.lock.waiting(podConfig.metadata.uid), LONG_WAIT).toBe(1);
      await expect
        .poll(() => runtime.node.history.ofPod(SANDBOX), LONG_WAIT)
        .toMatchObject([
          {
            state: 'Canceled',
            reason: 'SUPERSEDED',
            changes: [{ value: 'container c0 memory', from: '', to: '150Mi' }],
          },
        ]);
      release.resolve(undefined);
      await Promise.all([held, ...both]);
      expect(runtime.node.history.ofPod(SANDBOX).map(({ state }) => state)).toEqual(['Completed', 'Canceled']);
      expect(newest()?.changes).toContainEqual({ value: 'container c0 memory', from: '100Mi', to: '160Mi' });
    });

    test('does not record an update that changes nothing', async () => {
      await update(100);
      expect(newest()).toBeUndefined();
    });
  });

  describe('changes that a resize of a pod reports', () => {
    /** Runs a resize, and returns the changes that it reports last. */
    async function changesOf(asked: Partial<DesiredPod>, fails = false): Promise<unknown> {
      let seen: unknown;
      const desired = { pod: {}, containers: new Map(), volumes: new Map(), ...asked };
      const onChanges = (changes: unknown): void => void (seen = changes);
      const running = resizePod(runtime.node, SANDBOX, desired, { dryRun: false, deadline: Infinity, onChanges });
      if (fails) await expect(running).rejects.toThrow();
      else await running;
      return seen;
    }
    const mebibytes = (count: number) => bytes(count * MiB);
    const requests = (count: number) => ({ containers: { c0: mebibytes(count) }, pod: mebibytes(2 * count) });

    test('ResizePod reports changes of limits', async () => {
      const containers = new Map([['c0', { memory: mebibytes(150) }]]);
      const changes = await changesOf({ containers, memoryRequests: { containers: {} } });
      expect(changes).toContainEqual({ value: 'container c0 memory', from: '100Mi', to: '150Mi' });
    });

    test('ResizePod reports changes of memory requests, compared with those of an earlier resize', async () => {
      const containers = new Map([['c0', {}]]);
      expect(await changesOf({ containers, memoryRequests: requests(64) })).toEqual([
        { value: 'pod memory request', from: '', to: '128Mi' },
        { value: 'container c0 memory request', from: '', to: '64Mi' },
      ]);
      const earlierMemoryRequests = { containers: { c0: mebibytes(64) }, pod: mebibytes(160) };
      expect(await changesOf({ containers, memoryRequests: requests(80), earlierMemoryRequests })).toEqual([
        { value: 'container c0 memory request', from: '64Mi', to: '80Mi' },
      ]);
    });

    test('ResizePod reports changes of memory requests together with those of limits', async () => {
      const containers = new Map([['c0', { memory: mebibytes(150) }]]);
      expect(await changesOf({ containers, memoryRequests: { containers: { c0: mebibytes(64) } } })).toEqual([
        { value: 'pod memory', from: '300Mi', to: '350Mi' },
        { value: 'container c0 memory', from: '100Mi', to: '150Mi' },
        { value: 'container c0 memory request', from: '', to: '64Mi' },
      ]);
    });

    test('a rejected ResizePod reports the changes of memory requests too', async () => {
      const containers = new Map([['c0', { memory: mebibytes(0.25) }]]);
      expect(await changesOf({ containers, memoryRequests: { containers: { c0: mebibytes(0.125) } } }, true)).toEqual([
        { value: 'container c0 memory', from: '100Mi', to: '256Ki' },
        { value: 'container c0 memory request', from: '', to: '128Ki' },
      ]);
    });
  });
});

describe('A8: a limit below anonymous memory', () => {
  /** A memory limit below the anonymous memory in use: it fits where that memory can go to swap, and stays there. */

  const text = (count: number): string => String(count * MiB);
  const ANSWER = Buffer.from('the answer of the runtime');
  let store: FakeStoringRuntime;

  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    runtime.makePod(text(200), [200 * MiB]);
    store = new FakeStoringRuntime(runtime);
    mkdirSync(join(runtime.procRoot, 'sys/vm'), { recursive: true });
    writeFileSync(join(runtime.procRoot, 'meminfo'), `MemTotal:  16000000 kB\nSwapFree:  ${64 * 1024} kB\n`);
    for (const cgroup of ['/kubepods', '/kubepods/pod1']) runtime.writeFile(cgroup, 'memory.swap.max', 'max');
  });

  /** A container with 100 MiB of anonymous memory: this much would be left in memory by a reclaim with swap. */
  function create(unified: Readonly<Record<string, string>>): void {
    store.create(0, { memory_limit_in_bytes: criMi(200), memory_swap_limit_in_bytes: -1n, unified: { ...unified } });
    const stat = `anon ${text(100)}\nfile 0\nshmem 0\nactive_anon ${text(100)}\ninactive_anon 0\nunevictable 0`;
    for (const cgroup of ['/kubepods/pod1', `/kubepods/pod1/${containerId(0)}`]) {
      runtime.writeFile(cgroup, 'memory.stat', stat);
      runtime.writeFile(cgroup, 'memory.current', text(100));
      runtime.writeFile(cgroup, 'memory.swap.current', '0');
    }
  }

  const dryRun = (mebibytes: number) =>
    resizePod(
      runtime.node,
      SANDBOX,
      { pod: {}, containers: new Map([['c0', { memory: bytes(mebibytes * MiB) }]]), volumes: new Map() },
      { dryRun: true, deadline: performance.now() + 60_000 },
    );
  const reasonOf = (error: unknown): string | undefined => (error instanceof ShimError ? error.reason : undefined);
  /** Usage does not fall in a folder, so these tests only check the admission. */
  const rejectedAtOnce = { code: 9, reason: 'MEMORY_NOT_RECLAIMABLE' };

  test('admits a limit below anonymous memory if that memory fits into swap, and otherwise rejects it with figures', async () => {
    create({ 'memory.swap.max': 'max' });
    expect((await dryRun(40)).steps).not.toEqual([]);
    await expect(dryRun(36)).rejects.toMatchObject(rejectedAtOnce);
    await expect(dryRun(36)).rejects.toThrow(`less ${64 * MiB} that fit into swap`);
  });

  test('rejects a limit below anonymous memory for a container that must not swap', async () => {
    create({ 'memory.swap.max': '0' });
    await expect(dryRun(90)).rejects.toMatchObject(rejectedAtOnce);
    await expect(dryRun(90)).rejects.toThrow(/unevictable 0, of/);
  });

  const lowered = (linux: Parameters<typeof containerUpdate>[1]): Promise<unknown> => {
    const request = containerUpdate(containerId(0), { memory_limit_in_bytes: criMi(80), ...linux });
    // RECLAIM_TIMEOUT is the error of an admitted update.
    return outOfTime(runtime.node.tree, (deadline) =>
      updateContainer(runtime.node, request, () => Promise.resolve(ANSWER), { deadline }).catch(reasonOf),
    );
  };

  test('admits a limit below anonymous memory if the update keeps the swap of the container', async () => {
    create({ 'memory.swap.max': 'max' });
    expect(await lowered({})).toBe('RECLAIM_TIMEOUT');
    expect(await lowered({ unified: { 'memory.swap.max': 'max' } })).toBe('RECLAIM_TIMEOUT');
    create({});
    expect(await lowered({ memory_swap_limit_in_bytes: -1n })).toBe('RECLAIM_TIMEOUT');
  });

  test('KEP-1287: a limit below anonymous memory is rejected if the same update takes swap from the container', async () => {
    create({ 'memory.swap.max': 'max' });
    expect(await lowered({ unified: { 'memory.swap.max': '0' } })).toBe('MEMORY_NOT_RECLAIMABLE');
    expect(await lowered({ unified: { 'memory.swap.max': '16M' } })).toBe('MEMORY_NOT_RECLAIMABLE');
    // The runtime sets no swap where an update has memory and no swap.
    create({});
    expect(await lowered({})).toBe('MEMORY_NOT_RECLAIMABLE');
    expect(runtime.limitOf(0)).toBe(200 * MiB);
  });

  test('KEP-1287: an update that takes swap is rejected if its limit is below usage and swap together, even if above the usage', async () => {
    create({ 'memory.swap.max': 'max' });
    const cgroup = `/kubepods/pod1/${containerId(0)}`;
    runtime.writeFile(cgroup, 'memory.current', text(60));
    runtime.writeFile(cgroup, 'memory.stat', `anon ${text(60)}\nfile 0\nshmem 0\nactive_anon ${text(60)}`);
    runtime.writeFile(cgroup, 'memory.swap.current', text(40));
    expect(await lowered({ unified: { 'memory.swap.max': '0' } })).toBe('MEMORY_NOT_RECLAIMABLE');
    expect(runtime.limitOf(0)).toBe(200 * MiB);
  });

  test('KEP-1287: a rollback does not count swap as reclaimable, so the pod limit stays raised if memory is in use', async () => {
    create({ 'memory.swap.max': 'max' });
    writeFileSync(join(runtime.procRoot, 'meminfo'), `MemTotal:  16000000 kB\nSwapFree:  ${128 * 1024} kB\n`);
    const request = containerUpdate(containerId(0), { memory_limit_in_bytes: criMi(400) });
    const refuse = (): Promise<never> => {
      const stat = `anon ${text(250)}\nfile 0\nshmem 0\nactive_anon ${text(250)}\ninactive_anon 0\nunevictable 0`;
      runtime.writeFile('/kubepods/pod1', 'memory.stat', stat);
      runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'memory.stat', stat);
      runtime.writeFile('/kubepods/pod1', 'memory.current', text(250));
      return Promise.reject(new Error('refused by the runtime'));
    };
    const failing = updateContainer(runtime.node, request, refuse, { deadline: performance.now() + 60_000 });
    await expect(failing).rejects.toThrow(/^refused by the runtime$/);
    expect(runtime.read('memory.max')).toBe(text(400));
  });

  test('admits a pod limit below anonymous memory unless the same update takes the swap of the pod', async () => {
    create({ 'memory.swap.max': 'max' });
    const update = (resources: object): Promise<unknown> => {
      const name = 'UpdatePodSandboxResourcesRequest';
      const request = decode(name, encode(name, { pod_sandbox_id: SANDBOX, resources }));
      return outOfTime(runtime.node.tree, (deadline) =>
        updatePod(runtime.node, request, () => Promise.resolve(ANSWER), { deadline }).catch(reasonOf),
      );
    };
    expect(await update({ memory_limit_in_bytes: criMi(80) })).toBe('RECLAIM_TIMEOUT');
    const limits = { memory_limit_in_bytes: criMi(80), memory_swap_limit_in_bytes: criMi(80) };
    expect(await update(limits)).toBe('MEMORY_NOT_RECLAIMABLE');
    expect([runtime.read('memory.max'), runtime.read('memory.swap.max')]).toEqual([text(200), 'max']);
    runtime.writeFile('/kubepods/pod1', 'memory.swap.max', text(32));
    expect(await update(limits)).toBe('MEMORY_NOT_RECLAIMABLE');
    expect(await update({ ...limits, memory_swap_limit_in_bytes: criMi(80 + 64) })).toBe('RECLAIM_TIMEOUT');
    expect(await update({ ...limits, memory_swap_limit_in_bytes: -1n })).toBe('RECLAIM_TIMEOUT');
  });
});

describe('an invalid UpdateContainerResources', () => {
  const ANSWER = Buffer.from('the answer of the runtime');

  beforeEach(async () => {
    runtime = await FakeRuntime.start();
  });

  const asked = (linux: Parameters<typeof containerUpdate>[1], more: object = {}) =>
    updateContainer(runtime.node, { ...containerUpdate(containerId(0), linux), ...more }, () => {
      if (linux.cpu_quota)
        runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'cpu.max', `${linux.cpu_quota} 100000`);
      return Promise.resolve(ANSWER);
    });

  test('KEP-1287: an invalid update is rejected at once and does not supersede a waiting request', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    let release = (): void => undefined;
    const held = runtime.node.lock.run(
      podConfig.metadata.uid,
      () => new Promise<void>((resolve) => (release = resolve)),
    );
    const good = asked({ cpu_quota: 20_000n });
    await expect(asked({ cpu_quota: 5n })).rejects.toMatchObject({ code: 3, reason: 'INVALID_VALUE' });
    release();
    await held;
    expect(await good).toBe(ANSWER);
  });

  test('rejects an update with both linux and windows', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    await expect(asked({ cpu_quota: 20_000n }, { windows: {} })).rejects.toThrow(
      'container c0 of pod default/web: windows: "set": must not be set together with linux',
    );
    expect(await asked({}, { linux: null, windows: {} })).toBe(ANSWER);
  });

  test('rejects an update with an invalid container id without a call to the runtime', async () => {
    const request = containerUpdate('f'.repeat(254), { memory_limit_in_bytes: BigInt(50 * MiB) });
    const rejected = updateContainer(runtime.node, request, () => Promise.resolve(ANSWER));
    await expect(rejected).rejects.toMatchObject({ code: 3 });
    expect(runtime.calls).toEqual([]);
  });

  test('rejects an update if the sum of the limits is too large', async () => {
    runtime.makePod(String(100 * MiB), [50 * MiB, 50 * MiB]);
    await expect(asked({ memory_limit_in_bytes: 2n ** 53n - 4096n })).rejects.toThrow(
      /^pod default\/web: memory.max: /,
    );
    await expect(asked({ cpu_quota: 2n ** 44n - 1n })).rejects.toThrow(/^pod default\/web: cpu.max: /);
    expect(runtime.read('memory.max')).toBe(String(100 * MiB));
  });
});
