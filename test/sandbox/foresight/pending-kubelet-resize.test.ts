import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { PodEntry } from '../../../src/kubelet/checkpoint.ts';
import { encode } from '../../../src/runtime/codec.ts';
import { updateContainer } from '../../../src/sandbox/operations/update-container.ts';
import { updatePod } from '../../../src/sandbox/operations/update-pod.ts';
import { podInfo } from '../../../src/sandbox/report/pod-info.ts';
import { containerId, containerUpdate, FakeRuntime, SANDBOX } from '../../support/fake-runtime.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
});
afterEach(async () => {
  await runtime.decreaseReclaimer.close();
  await runtime.close();
});

const entry = (...mebibytes: number[]): PodEntry => ({
  containers: new Map(mebibytes.map((memory, index) => [`c${index}`, { memory: bytes(memory * MiB) }])),
  pod: undefined,
  isComplete: true,
});

/** Makes a pod with these limits in mebibytes, and kubelet's allocated and actuated records of it. */
async function makePod(limits: readonly number[], wanted: readonly number[]): Promise<void> {
  runtime.makePod(
    String(limits.reduce((sum, limit) => sum + limit, 0) * MiB),
    limits.map((limit) => limit * MiB),
  );
  runtime.applyUpdates();
  runtime.allocated.set('uid-1', entry(...wanted));
  runtime.actuated.set('uid-1', entry(...limits));
  // The shim knows pods and containers from the calls that it forwards.
  await runtime.node.registry.pod(SANDBOX);
  for (const index of limits.keys()) await runtime.node.registry.describeContainer(containerId(index));
}

const update = (index: number, mebibytes: number) => {
  const request = containerUpdate(containerId(index), { memory_limit_in_bytes: BigInt(mebibytes * MiB) });
  return updateContainer(runtime.node, request, () => {
    runtime.writeFile(`/kubepods/pod1/${containerId(index)}`, 'memory.max', String(mebibytes * MiB));
    return Promise.resolve(Buffer.alloc(0));
  });
};
/** Adds an init container that has ended with 0, as kubelet 1.36 lists it, with this limit in mebibytes. */
function addInit(mebibytes: number): void {
  const id = 'e'.repeat(64);
  const base = { id, metadata: { name: 'setup' }, created_at: 1n };
  runtime.node.registry.learnContainer({ containerId: id, sandboxId: SANDBOX, name: 'setup' });
  const linux = { memory_limit_in_bytes: BigInt(mebibytes * MiB) };
  runtime.describeContainer(id, { ...base, state: 2, exit_code: 0, resources: { linux } });
  runtime.on('ListContainers', () => {
    const app = { id: containerId(0), metadata: { name: 'c0' }, state: 1, created_at: 2n };
    return encode('ListContainersResponse', { containers: [{ ...base, state: 2 }, app] });
  });
  for (const records of [runtime.allocated, runtime.actuated]) {
    const { containers, ...more } = records.get('uid-1')!;
    const limits = new Map([['setup', { memory: bytes(mebibytes * MiB) }], ...containers]);
    records.set('uid-1', { ...more, containers: limits });
  }
}

const podLimit = (): number => Number(runtime.read('memory.max')) / MiB;

describe('the pod limit during a pending kubelet resize', () => {
  test('the pod limit is not lowered with one container if another container raises it again', async () => {
    await makePod([192, 64], [64, 192]);
    await update(0, 64);
    expect(podLimit()).toBe(256);
    await update(1, 192);
    expect(podLimit()).toBe(256);
  });

  test.each([160, 200])(
    'A9: the pod limit stays as kubelet has written it, with an init container that has ended: 96 to %i',
    async (to) => {
      await makePod([96], [to]);
      addInit(64);
      // kubelet first writes the pod limit: the maximum of the init container and the app container.
      runtime.writeFile('/kubepods/pod1', 'memory.max', String(to * MiB));
      await update(0, to);
      expect([podLimit(), runtime.limitOf(0) / MiB]).toEqual([to, to]);
    },
  );

  test('A9: the pod limit is raised to at most the sum that kubelet computes if the container is updated first', async () => {
    await makePod([96], [200]);
    addInit(64);
    await update(0, 200);
    expect(podLimit()).toBe(200);
  });

  describe('a pod CPU limit raised with a container', () => {
    /** kubelet has admitted memory for c0 that it cannot set yet, and CPU limits `before` and `after` the change. */
    async function pendingMemory(before = 100, after = before): Promise<void> {
      await makePod([100, 100], [50, 100]);
      const withCpu = (memory: number, milliCpu: number): PodEntry => {
        const { containers, ...more } = entry(memory, 100);
        const cpus = [milliCpu, 100];
        const limits = [...containers].map(([name, one], at) => [name, { ...one, milliCpu: cpus[at]! }] as const);
        return { ...more, containers: new Map(limits) };
      };
      runtime.allocated.set('uid-1', withCpu(50, after));
      runtime.actuated.set('uid-1', withCpu(100, before));
    }
    const updateCpu = async (quota: number, found = quota): Promise<string[]> => {
      const request = containerUpdate(containerId(0), { cpu_quota: BigInt(quota), cpu_period: 100_000n });
      await updateContainer(runtime.node, request, () => {
        runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'cpu.max', `${found} 100000`);
        return Promise.resolve(Buffer.alloc(0));
      });
      return [runtime.read('cpu.max'), runtime.read(`${containerId(0)}/cpu.max`)];
    };

    test('the pod CPU limit is raised with a container by another client while a new memory limit is pending', async () => {
      await pendingMemory();
      expect(await updateCpu(50_000)).toEqual(['60000 100000', '50000 100000']);
    });

    test('the pod CPU limit is raised with a container by another client to another value than the pending one', async () => {
      await pendingMemory(100, 200);
      expect(await updateCpu(50_000)).toEqual(['60000 100000', '50000 100000']);
    });

    test('the pod CPU limit follows the value that a runtime plugin chooses instead of the value from kubelet', async () => {
      await pendingMemory(100, 200);
      expect(await updateCpu(20_000, 50_000)).toEqual(['60000 100000', '50000 100000']);
    });

    test('the pod CPU limit is raised by an update of kubelet to the sum that kubelet sets as well', async () => {
      await pendingMemory(100, 200);
      expect(await updateCpu(20_000)).toEqual(['30000 100000', '20000 100000']);
    });
  });

  test('the pod limit is lowered to the value that kubelet sets at the end', async () => {
    await makePod([192, 64], [64, 96]);
    await update(0, 64);
    expect(podLimit()).toBe(160);
    await update(1, 96);
    expect(podLimit()).toBe(160);
  });

  test('the pod limit follows the containers if an update is not part of the resize, or no resize is pending', async () => {
    await makePod([192, 64], [64, 192]);
    await update(0, 128);
    expect(podLimit()).toBe(192);
    runtime.actuated.set('uid-1', entry(64, 192));
    await update(0, 64);
    expect(podLimit()).toBe(128);
  });
});

describe('the info of a pod with a pending kubelet resize', () => {
  const info = () => podInfo(runtime.node, runtime.decreaseReclaimer, SANDBOX);
  const wants = (mebibytes: number) => ({ 'memory.max': String(mebibytes * MiB) });

  test('the pod info has the pending values of kubelet next to the actual ones', async () => {
    await makePod([192, 64], [96, 64]);
    expect(await info()).toMatchObject({
      pod: { pending: wants(160), actual: { 'memory.max': String(256 * MiB) } },
      containers: { c0: { pending: wants(96) } },
    });
    expect((await info()).containers['c1']?.pending).toBeUndefined();
    await update(0, 96);
    runtime.actuated.set('uid-1', entry(96, 64));
    expect((await info()).pod.pending).toBeUndefined();
  });

  test('the pod info has the pod limit that kubelet 1.36 computes with an ended init container', async () => {
    await makePod([192, 64], [96, 64]);
    const setup = 'e'.repeat(64);
    runtime.node.registry.learnContainer({ containerId: setup, sandboxId: SANDBOX, name: 'setup' });
    runtime.describeContainer(setup, { metadata: { name: 'setup' }, state: 2 });
    runtime.on('ListContainers', () =>
      encode('ListContainersResponse', {
        containers: [
          { id: setup, metadata: { name: 'setup' }, state: 2, created_at: 1n },
          { id: containerId(0), metadata: { name: 'c0' }, state: 1, created_at: 2n },
          { id: containerId(1), metadata: { name: 'c1' }, state: 1, created_at: 3n },
        ],
      }),
    );
    const listsInit = (pod: PodEntry): PodEntry => ({
      ...pod,
      containers: new Map([...pod.containers, ['setup', { memory: bytes(100 * MiB) }]]),
    });
    runtime.allocated.set('uid-1', listsInit(entry(96, 64)));
    runtime.actuated.set('uid-1', listsInit(entry(192, 64)));
    expect((await info()).pod).toMatchObject({ pending: wants(160) });
  });

  test('the pod info is Deferred with figures while memory cannot be reclaimed, and Completed after that', async () => {
    await makePod([192], [64]);
    const use = (anon: number): void => {
      runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'memory.current', String(anon * MiB));
      runtime.writeFile(
        `/kubepods/pod1/${containerId(0)}`,
        'memory.stat',
        `anon ${anon * MiB}\nshmem 0\nunevictable 0`,
      );
    };
    use(100);
    await runtime.decreaseReclaimer.comparable('uid-1', 'cadvisor');
    await expect.poll(async () => (await info()).state, LONG_WAIT).toBe('Deferred');
    expect(await info()).toMatchObject({
      lastError: {
        reason: 'MEMORY_NOT_RECLAIMABLE',
        message: expect.stringContaining(`${100 * MiB} bytes are in use`) as string,
      },
      decrease: { state: 'Deferred', reason: 'MEMORY_NOT_RECLAIMABLE', reclaimedBytes: 0 },
    });
    use(10);
    await update(0, 64);
    runtime.decreaseReclaimer.check();
    await expect.poll(async () => (await info()).decrease, LONG_WAIT).toBeUndefined();
    expect((await info()).state).toBe('Completed');
  });
});

test('limits that kubelet admits for an ended init container do not make the shim read the pod repeatedly', async () => {
  await makePod([192], [192]);
  const setup = 'e'.repeat(64);
  runtime.node.registry.learnContainer({ containerId: setup, sandboxId: SANDBOX, name: 'setup' });
  runtime.describeContainer(setup, { metadata: { name: 'setup' }, state: 2 });
  const listsInit = (mebibytes: number): PodEntry => ({
    ...entry(192),
    containers: new Map([...entry(192).containers, ['setup', { memory: bytes(mebibytes * MiB) }]]),
  });
  runtime.allocated.set('uid-1', listsInit(64));
  runtime.actuated.set('uid-1', listsInit(32));
  const read = vi.spyOn(runtime.node.tree, 'readLimits');
  let [before, same] = [0, 0];
  // Each check reads the pods with pending limits.
  const sameReads = (): number => {
    const now = read.mock.calls.length;
    same = now > 0 && now === before ? same + 1 : 0;
    before = now;
    runtime.decreaseReclaimer.check();
    return same;
  };
  await expect.poll(sameReads, LONG_WAIT).toBeGreaterThan(3);
});

test('UpdatePodSandboxResources without values does not lower a pod limit that kubelet raises again', async () => {
  await makePod([192, 64], [64, 192]);
  const call = { pod_sandbox_id: SANDBOX, overhead: null, resources: null };
  await updatePod(runtime.node, call, () => Promise.resolve(Buffer.alloc(0)));
  expect(podLimit()).toBe(256);
});
