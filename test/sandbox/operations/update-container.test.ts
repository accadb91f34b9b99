import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { encode } from '../../../src/runtime/codec.ts';
import { runtimePath } from '../../../src/runtime/backend.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';
import {
  FakeRuntime,
  RuntimeFailure,
  SANDBOX,
  containerId,
  containerUpdate,
  podConfig,
} from '../../support/fake-runtime.ts';
import { scheduleVolumeGrowth } from '../../../src/sandbox/operations/pod-volumes.ts';
import { updateContainer } from '../../../src/sandbox/operations/update-container.ts';
import { ANSWER, ContainerUpdates } from '../../support/resize/container-updates.ts';

let runtime: FakeRuntime;
let updates: ContainerUpdates;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  updates = new ContainerUpdates(runtime);
});
afterEach(() => runtime.close());

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
  /** Makes the pod's only container use 48 MiB, most of it page cache. Returns what is written to memory.high. */
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
