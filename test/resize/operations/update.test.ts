import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { Metadata } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { bytes } from '../../../src/core/quantities/index.ts';
import { decode, encode, readContainerStatus } from '../../../src/runtime/index.ts';
import { FakeRuntime, SANDBOX, containerId, containerUpdate, podConfig } from '../../support/fake-runtime.ts';
import { findCgroup } from '../../../src/sandbox/container-cgroups.ts';
import { kernelResources } from '../../../src/sandbox/kernel-resources.ts';
import { updateContainer } from '../../../src/resize/operations/update-container.ts';
import { updatePod } from '../../../src/resize/operations/update-pod.ts';

const MiB = 1024 * 1024;
const ANSWER = Buffer.from('the answer of the runtime');

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
});
afterEach(() => runtime.close());

/** The runtime carries out a memory limit. */
const applies = (memory: number, id = containerId(0)) => {
  if (memory > 0 && id !== containerId(7)) runtime.writeFile(`/kubepods/pod1/${id}`, 'memory.max', String(memory));
  return Promise.resolve(ANSWER);
};
const update = (memory: number, forward = () => applies(memory), id = containerId(0)) =>
  updateContainer(runtime.context, containerUpdate(id, { memory_limit_in_bytes: BigInt(memory) }), forward);

describe('what cannot be understood is forwarded as it came', () => {
  test('a container that the runtime does not know', async () => {
    runtime.makePod(String(200 * MiB), [100 * MiB]);
    expect(await update(50 * MiB, undefined, containerId(7))).toBe(ANSWER);
    expect(runtime.failOpens).toEqual(['unknown_pod']);
  });

  test('a runtime that does not answer', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    runtime.on('ContainerStatus');
    expect(await update(50 * MiB)).toBe(ANSWER);
    expect(runtime.failOpens).toEqual(['unknown_pod']);
  });

  test('a pod of which the runtime says nothing', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    runtime.describePod({ strange: true });
    expect(await update(50 * MiB)).toBe(ANSWER);
    expect(runtime.failOpens).toEqual(['unknown_pod']);
    expect(runtime.read('memory.max')).toBe(String(100 * MiB));
  });

  test('a pod whose cgroup is not there', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    rmSync(join(runtime.cgroupRoot, 'kubepods/pod1/memory.max'));
    expect(await update(50 * MiB)).toBe(ANSWER);
    expect(runtime.failOpens).toEqual(['unreadable_state']);
  });

  test('a cgroup file with something else in it than the kernel writes', async () => {
    runtime.makePod('a lot', [100 * MiB]);
    expect(await update(50 * MiB)).toBe(ANSWER);
    expect(runtime.failOpens).toEqual(['unreadable_state']);
  });

  test('a cgroup parent that leads elsewhere', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    runtime.describePod({ config: { ...podConfig, linux: { cgroup_parent: '/kubepods/../../etc' } } });
    expect(await update(50 * MiB)).toBe(ANSWER);
    expect(runtime.failOpens).toEqual(['unreadable_state']);
  });

  test('counted each time, said once', async () => {
    runtime.makePod('a lot', [100 * MiB]);
    await update(50 * MiB);
    await update(60 * MiB);
    expect(runtime.failOpens).toHaveLength(2);
    expect(runtime.warnings).toHaveLength(1);
    expect(runtime.warnings[0]).toMatchObject({ reason: 'unreadable_state', id: containerId(0) });
  });
});

describe('what has no meaning is refused before it waits for anything', () => {
  const asked = (linux: Parameters<typeof containerUpdate>[1], more: object = {}) =>
    updateContainer(runtime.context, { ...containerUpdate(containerId(0), linux), ...more }, () => {
      if (linux.cpu_quota)
        runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'cpu.max', `${linux.cpu_quota} 100000`);
      return Promise.resolve(ANSWER);
    });

  test('it does not take the place of one that waits', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    let release = (): void => undefined;
    const held = runtime.context.lock.run(SANDBOX, () => new Promise<void>((resolve) => (release = resolve)));
    const good = asked({ cpu_quota: 20_000n });
    await expect(asked({ cpu_quota: 5n })).rejects.toMatchObject({ code: 3, reason: 'INVALID_VALUE' });
    release();
    await held;
    expect(await good).toBe(ANSWER);
  });

  test('both linux and windows', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    await expect(asked({ cpu_quota: 20_000n }, { windows: {} })).rejects.toThrow(
      'container c0 of pod default/web: windows: "set": must not be set together with linux',
    );
    expect(await asked({}, { linux: null, windows: {} })).toBe(ANSWER);
  });

  test('an id that nothing can have: nobody is asked for it', async () => {
    await expect(update(50 * MiB, undefined, 'f'.repeat(254))).rejects.toMatchObject({ code: 3 });
    expect(runtime.calls).toEqual([]);
  });

  test('limits that come to more than can be told', async () => {
    runtime.makePod(String(100 * MiB), [50 * MiB, 50 * MiB]);
    await expect(asked({ memory_limit_in_bytes: 2n ** 53n - 4096n })).rejects.toThrow(
      /^pod default\/web: memory.max: /,
    );
    await expect(asked({ cpu_quota: 2n ** 44n - 1n })).rejects.toThrow(/^pod default\/web: cpu.max: /);
    expect(runtime.read('memory.max')).toBe(String(100 * MiB));
  });
});

describe('around the call to the runtime', () => {
  const halfDone = () => {
    const limits = { 'memory.max': String(150 * MiB), 'cpu.max': '10000 100000' };
    runtime.writeCgroup(`/kubepods/pod1/${containerId(0)}`, limits);
    return Promise.reject(new Error('deadline exceeded'));
  };

  test('the pod is raised when the runtime is called, and the answer is its own', async () => {
    runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    let atCall = '';
    const answer = await update(150 * MiB, () => {
      atCall = runtime.read('memory.max');
      return applies(150 * MiB);
    });
    expect(answer).toBe(ANSWER);
    expect(atCall).toBe(String(350 * MiB));
  });

  test('the pod is lowered only when the runtime has answered', async () => {
    runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    let atCall = '';
    await update(50 * MiB, () => {
      atCall = runtime.read('memory.max');
      return applies(50 * MiB);
    });
    expect(atCall).toBe(String(300 * MiB));
    expect(runtime.read('memory.max')).toBe(String(250 * MiB));
  });

  test('a failing runtime: its own error, and the pod is as it was', async () => {
    runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    const failure = new Error('runc update failed');
    await expect(update(150 * MiB, () => Promise.reject(failure))).rejects.toBe(failure);
    expect(runtime.read('memory.max')).toBe(String(300 * MiB));
  });

  test('a runtime that fails after it has raised the container: that is taken back, and the pod too', async () => {
    runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    runtime.applyUpdates();
    await expect(update(150 * MiB, halfDone)).rejects.toThrow('deadline exceeded');
    expect(runtime.limitOf(0)).toBe(100 * MiB);
    expect(runtime.read('memory.max')).toBe(String(300 * MiB));
  });

  test('one that takes nothing back either: the pod stays raised', async () => {
    runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    await expect(update(150 * MiB, halfDone)).rejects.toThrow('deadline');
    expect(runtime.read('memory.max')).toBe(String(350 * MiB));
  });

  test('A4: so it does for a container that waits to be created, though those that run would fit', async () => {
    runtime.makePod(String(300 * MiB), [100 * MiB]);
    const limits = { 'cpu.max': '10000 100000', 'cpu.weight': '4' };
    runtime.writeCgroup('/kubepods/pod1', { ...limits, 'memory.max': String(300 * MiB) });
    runtime.context.registry.learnContainer({ containerId: containerId(0), sandboxId: SANDBOX, name: 'c0' });
    const containers = new Map([
      ['c0', { memory: bytes(100 * MiB) }],
      ['c1', { memory: bytes(200 * MiB) }],
    ]);
    runtime.allocated.set('uid-1', { containers, pod: undefined, isComplete: true });
    await expect(update(150 * MiB, halfDone)).rejects.toThrow('deadline');
    expect(runtime.read('memory.max')).toBe(String(350 * MiB));
  });

  test('under use: refused with the figures, and the runtime is not called', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    runtime.writeCgroup(`/kubepods/pod1/${containerId(0)}`, {
      'memory.max': String(100 * MiB),
      'cpu.max': '10000 100000',
      'memory.stat': `anon ${40 * MiB}\nshmem ${10 * MiB}\nunevictable 0\n`,
      'memory.current': String(50 * MiB),
    });
    let called = false;
    const refused = update(50 * MiB, () => {
      called = true;
      return Promise.resolve(ANSWER);
    });
    await expect(refused).rejects.toMatchObject({
      code: 9,
      reason: 'MEMORY_NOT_RECLAIMABLE',
      context: { container: 'c0', pod: 'default/web', asked: String(50 * MiB), found: String(50 * MiB) },
    });
    expect(called).toBe(false);
    expect(runtime.read('memory.max')).toBe(String(100 * MiB));
  });

  test('a pod whose use forbids its own lowering: the container is lowered, the pod stays, with a warning', async () => {
    runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    runtime.writeCgroup('/kubepods/pod1', {
      'memory.max': String(300 * MiB),
      'cpu.max': '20000 100000',
      'memory.stat': `anon ${260 * MiB}\nshmem 0\nunevictable 0\n`,
      'memory.current': String(260 * MiB),
    });
    expect(await update(50 * MiB)).toBe(ANSWER);
    expect(runtime.read('memory.max')).toBe(String(300 * MiB));
    expect(runtime.warnings).toMatchObject([{ pod: SANDBOX, asked: 250 * MiB, unreclaimable: 260 * MiB }]);
  });

  test('A12: the state of a container is read when its turn comes, not when it is asked for', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    runtime.context.registry.learnContainer({ containerId: containerId(0), sandboxId: SANDBOX, name: 'c0' });
    const cgroup = `/kubepods/pod1/${containerId(0)}`;
    let state = 0;
    runtime.wrapResponder('ContainerStatus', async (request, before) => {
      const status = { id: containerId(0), metadata: { name: 'c0' }, state };
      return Buffer.concat([await before(request), encode('ContainerStatusResponse', { status })]);
    });
    let free = (): void => undefined;
    const held = new Promise<void>((resolve) => (free = resolve));
    const holder = runtime.context.lock.run(SANDBOX, () => held);
    let called = false;
    const lowered = update(50 * MiB, () => {
      called = true;
      return Promise.resolve(ANSWER);
    });
    // Asked while the container was created; it runs and uses 90 MiB when the lock is free.
    state = 1;
    runtime.writeFile(cgroup, 'memory.stat', `anon ${90 * MiB}\nshmem 0\nunevictable 0\n`);
    runtime.writeFile(cgroup, 'memory.current', String(90 * MiB));
    while (runtime.context.lock.waiting(SANDBOX) === 0) await new Promise(setImmediate);
    free();
    await holder;
    await expect(lowered).rejects.toMatchObject({ reason: 'MEMORY_NOT_RECLAIMABLE' });
    expect(called).toBe(false);
  });

  test('two updates of one pod do not mix', async () => {
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
      update(150 * MiB, slowly(0, 150 * MiB), containerId(0)),
      update(250 * MiB, slowly(1, 250 * MiB), containerId(1)),
    ]);
    expect(seen).toHaveLength(4);
    expect(seen[0]?.replace('begin', 'end')).toBe(seen[1]);
    expect(runtime.read('memory.max')).toBe(String(400 * MiB));
  });

  test('values without meaning are refused before anything is done', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    await expect(update(-7)).rejects.toMatchObject({ code: 3, reason: 'INVALID_VALUE' });
  });
});

describe('the pod itself', () => {
  const podUpdate = (resources: object, more: object = {}) => {
    const name = 'UpdatePodSandboxResourcesRequest';
    return decode(name, encode(name, { pod_sandbox_id: SANDBOX, resources, ...more }));
  };

  test('a failing runtime: everything goes back, shares and unified keys too', async () => {
    runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    runtime.writeCgroup('/kubepods/pod1', {
      'memory.max': String(300 * MiB),
      'cpu.max': '20000 100000',
      'cpu.weight': '39',
      'memory.high': 'max',
    });
    const request = podUpdate({
      memory_limit_in_bytes: BigInt(250 * MiB),
      cpu_quota: 50_000n,
      cpu_shares: 2048n,
      unified: { 'memory.high': '200000000' },
    });
    let atCall: string[] = [];
    const files = ['memory.max', 'cpu.max', 'cpu.weight', 'memory.high'];
    const before = files.map((file) => runtime.read(file));
    const forward = () => {
      atCall = files.map((file) => runtime.read(file));
      return Promise.reject(new Error('the runtime says no'));
    };
    await expect(updatePod(runtime.context, request, forward)).rejects.toThrow('says no');
    // 79: the old formula, by which 1024 shares have given the pod its weight of 39.
    expect(atCall).toEqual([String(250 * MiB), '50000 100000', '79', '200000000']);
    expect(files.map((file) => runtime.read(file))).toEqual(before);
  });

  test('the new formula where the live weight came by it', async () => {
    runtime.makePod(String(300 * MiB), [300 * MiB]);
    runtime.writeCgroup('/kubepods/pod1', { 'memory.max': 'max', 'cpu.max': 'max 100000', 'cpu.weight': '100' });
    await updatePod(runtime.context, podUpdate({ cpu_shares: 2048n }), () => Promise.resolve(ANSWER));
    expect(runtime.read('cpu.weight')).toBe('174');
  });

  test('shares as kubelet reads them from the cgroup leave the weight as it is', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    const weightAfter = async (cpu_shares: bigint, overhead?: bigint): Promise<string> => {
      const more = overhead === undefined ? {} : { overhead: { cpu_shares: overhead } };
      const limits = { cpu_shares, memory_limit_in_bytes: BigInt(200 * MiB) };
      await updatePod(runtime.context, podUpdate(limits, more), () => Promise.resolve(ANSWER));
      return runtime.read('cpu.weight');
    };
    // 1024 shares, weight 39, are 998 when they are read back, and those would be weight 38.
    expect(await weightAfter(998n)).toBe('39');
    expect(runtime.read('memory.max')).toBe(String(200 * MiB));
    // Of 975 thousandths of a processor, 100 are overhead.
    expect(await weightAfter(896n, 102n)).toBe('39');
    expect(await weightAfter(997n)).toBe('38');
    // What was asked for last is what the next weight goes by.
    expect(await weightAfter(2048n)).toBe('79');
  });

  test('an unknown volume and a bad annotation are refused', async () => {
    runtime.makePod(String(300 * MiB), [300 * MiB]);
    const asked = (value: string) =>
      updatePod(runtime.context, podUpdate({}, { annotations: { 'volume.cri-resize-shim.io/cache': value } }), () =>
        Promise.resolve(ANSWER),
      );
    await expect(asked('64Mi')).rejects.toMatchObject({ code: 3, reason: 'UNKNOWN_VOLUME' });
    await expect(asked('much')).rejects.toMatchObject({ code: 3, reason: 'INVALID_ANNOTATION' });
  });

  test('a key of unified that is no setting is refused, and leads nowhere', async () => {
    runtime.makePod(String(300 * MiB), [300 * MiB]);
    for (const key of ['../memory.max', 'cgroup.procs', 'memory.reclaim', '/etc/passwd']) {
      const refused = updatePod(runtime.context, podUpdate({ unified: { [key]: '1' } }), () => Promise.resolve(ANSWER));
      await expect(refused).rejects.toMatchObject({ code: 3, reason: 'INVALID_VALUE' });
    }
  });

  test('a setting that the cgroup does not have is refused, and nothing is passed on', async () => {
    runtime.makePod(String(300 * MiB), [300 * MiB]);
    const request = podUpdate({ memory_limit_in_bytes: BigInt(400 * MiB), unified: { 'memory.nonsense': '1' } });
    const refused = updatePod(runtime.context, request, () => Promise.resolve(ANSWER));
    await expect(refused).rejects.toMatchObject({ code: 3, reason: 'INVALID_VALUE' });
    await expect(refused).rejects.toThrow('unified["memory.nonsense"]: "1": there is no such file');
    expect(runtime.read('memory.max')).toBe(String(300 * MiB));
  });

  test('an empty setting is put back when a later one is refused', async () => {
    runtime.makePod(String(300 * MiB), [300 * MiB]);
    const pod = { 'memory.max': 'max', 'cpu.max': 'max 100000', 'cpu.weight': '39', 'cpuset.cpus': '' };
    runtime.writeCgroup('/kubepods/pod1', pod);
    const request = podUpdate({ unified: { 'cpuset.cpus': '0' } });
    let atCall = '';
    const says = () => {
      atCall = runtime.read('cpuset.cpus');
      return Promise.reject(new Error('the runtime says no'));
    };
    await expect(updatePod(runtime.context, request, says)).rejects.toThrow(/^the runtime says no$/);
    expect([atCall, runtime.read('cpuset.cpus')]).toEqual(['0', '']);
  });

  test.each([
    ['memory', { memory_limit_in_bytes: 2n ** 53n - 4096n }, { memory_limit_in_bytes: 8192n }],
    ['a quota', { cpu_quota: 2n ** 44n - 1n }, { cpu_quota: 1000n }],
  ])('%s that cannot be told with its overhead is refused', async (_name, resources, overhead) => {
    runtime.makePod(String(300 * MiB), [300 * MiB]);
    const refused = updatePod(runtime.context, podUpdate(resources, { overhead }), () => Promise.resolve(ANSWER));
    await expect(refused).rejects.toMatchObject({ code: 3, reason: 'INVALID_VALUE' });
    expect(runtime.read('memory.max')).toBe(String(300 * MiB));
  });

  // kubelet subtracts the overhead from -1, which it reads from a file without a limit.
  test.each([
    ['A1: a CPU limit below 0', { cpu_quota: -25_001n, cpu_period: 100_000n }, { 'cpu.max': 'max 100000' }],
    ['A1: a memory limit below 0', { memory_limit_in_bytes: -125_829_121n }, { 'memory.max': 'max' }],
    ['A1: a CPU limit below the minimum', { cpu_quota: 500n, cpu_period: 100_000n }, { 'cpu.max': '25500 100000' }],
    ['A1: a memory limit below a page', { memory_limit_in_bytes: 1n }, { 'memory.max': String(120 * MiB + 1) }],
  ])('%s counts with the overhead', async (_name, resources, files) => {
    runtime.makePod(String(300 * MiB), [300 * MiB]);
    const overhead = { memory_limit_in_bytes: BigInt(120 * MiB), cpu_quota: 25_000n, cpu_period: 100_000n };
    await updatePod(runtime.context, podUpdate(resources, { overhead }), () => Promise.resolve(ANSWER));
    for (const [file, content] of Object.entries(files)) expect(runtime.read(file)).toBe(content);
  });

  const lacksTheCall = () =>
    Promise.reject(Object.assign(new Error(), { code: 12, details: 'unknown method', metadata: new Metadata() }));

  test('a runtime that lacks the call is answered for, where the cgroup has been written', async () => {
    runtime.makePod(String(300 * MiB), [300 * MiB]);
    const answer = await updatePod(runtime.context, podUpdate({ cpu_quota: 50_000n }), lacksTheCall);
    expect(answer).toEqual(Buffer.alloc(0));
    expect(runtime.read('cpu.max')).toBe('50000 100000');
  });

  test('containerd 2.2 has the call and says that it is not implemented: the same; any other Unknown is its own', async () => {
    runtime.makePod(String(300 * MiB), [300 * MiB]);
    const says = (details: string) => () =>
      Promise.reject(Object.assign(new Error(details), { code: 2, details, metadata: new Metadata() }));
    const request = podUpdate({ cpu_quota: 50_000n });
    expect(await updatePod(runtime.context, request, says('not implemented yet'))).toEqual(Buffer.alloc(0));
    expect(runtime.read('cpu.max')).toBe('50000 100000');
    const refused = updatePod(runtime.context, podUpdate({ cpu_quota: 60_000n }), says('runc has failed'));
    await expect(refused).rejects.toMatchObject({ code: 2, details: 'runc has failed' });
    expect(runtime.read('cpu.max')).toBe('50000 100000');
  });

  test('of a pod that nobody knows nothing is answered for it', async () => {
    runtime.on('PodSandboxStatus', () => {
      throw new Error('no such pod');
    });
    const refused = updatePod(runtime.context, podUpdate({ cpu_quota: 50_000n }), lacksTheCall);
    await expect(refused).rejects.toMatchObject({ code: 5, reason: 'UNKNOWN_POD' });
    runtime.on('PodSandboxStatus');
    const unanswered = updatePod(runtime.context, podUpdate({ cpu_quota: 50_000n }), lacksTheCall);
    await expect(unanswered).rejects.toMatchObject({ code: 14, details: 'no answer' });
  });

  test('nor of one without a cgroup of its own', async () => {
    runtime.describePod({ config: { ...podConfig, linux: {} } });
    const passed = updatePod(runtime.context, podUpdate({ cpu_quota: 50_000n }), lacksTheCall);
    await expect(passed).rejects.toMatchObject({ code: 12, details: 'unknown method' });
  });

  test('without a cgroup of its own it is only passed on', async () => {
    runtime.describePod({ config: { ...podConfig, linux: {} } });
    const answer = updatePod(runtime.context, podUpdate({ cpu_quota: 1000n }), () => Promise.resolve(ANSWER));
    expect(await answer).toBe(ANSWER);
    expect(runtime.failOpens).toEqual([]);
  });
});

describe('what ContainerStatus has to say', () => {
  const kernelOf = async (id: string, reported: Parameters<typeof kernelResources>[2]) => {
    const cgroup = await findCgroup(runtime.context, id);
    return kernelResources(runtime.context, cgroup!, reported);
  };

  const stored = (resources: object) => {
    const response = encode('ContainerStatusResponse', { status: { resources: { linux: resources } } });
    return readContainerStatus(response).resources;
  };

  test.each([
    [
      'the same',
      { memory_limit_in_bytes: BigInt(100 * MiB), cpu_quota: 10_000n, cpu_period: 100_000n, cpu_shares: 102n },
      undefined,
    ],
    [
      'shares by the other formula',
      { memory_limit_in_bytes: BigInt(100 * MiB), cpu_quota: 10_000n, cpu_period: 100_000n, cpu_shares: 10n },
      undefined,
    ],
    [
      'rounding to a page',
      { memory_limit_in_bytes: BigInt(100 * MiB + 4000), cpu_quota: 10_000n, cpu_period: 100_000n, cpu_shares: 102n },
      undefined,
    ],
    [
      'memory',
      { memory_limit_in_bytes: BigInt(64 * MiB), cpu_quota: 10_000n, cpu_period: 100_000n, cpu_shares: 102n },
      { memory_limit_in_bytes: 100 * MiB },
    ],
    [
      'quota',
      { memory_limit_in_bytes: BigInt(100 * MiB), cpu_quota: 5000n, cpu_period: 100_000n, cpu_shares: 102n },
      { cpu_quota: 10_000, cpu_period: 100_000 },
    ],
  ])('%s', async (_name, reported, expected) => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    expect(await kernelOf(containerId(0), stored(reported))).toEqual(expected);
  });

  test('swap counts together with memory, where a limit for it was given', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    const cgroup = `/kubepods/pod1/${containerId(0)}`;
    const files = { 'memory.max': String(100 * MiB), 'cpu.max': '10000 100000', 'cpu.weight': '4' };
    const linux = {
      memory_limit_in_bytes: BigInt(100 * MiB),
      cpu_quota: 10_000n,
      cpu_period: 100_000n,
      cpu_shares: 102n,
    };
    const given = stored({ ...linux, memory_swap_limit_in_bytes: BigInt(100 * MiB) });
    runtime.writeCgroup(cgroup, { ...files, 'memory.swap.max': '0' });
    expect(await kernelOf(containerId(0), given)).toBeUndefined();
    runtime.writeCgroup(cgroup, { ...files, 'memory.swap.max': String(28 * MiB) });
    expect(await kernelOf(containerId(0), given)).toEqual({
      memory_swap_limit_in_bytes: 128 * MiB,
    });
    expect(await kernelOf(containerId(0), stored(linux))).toBeUndefined();
  });

  test('no limit is -1, and 0 where none was ever given', async () => {
    runtime.makePod('max', [100 * MiB]);
    runtime.writeCgroup(`/kubepods/pod1/${containerId(0)}`, {
      'memory.max': 'max',
      'cpu.max': 'max 100000',
      'cpu.weight': '100',
    });
    const changed = stored({ memory_limit_in_bytes: 5000n, cpu_quota: 5000n, cpu_period: 100_000n });
    expect(await kernelOf(containerId(0), changed)).toEqual({
      cpu_period: 100_000,
      cpu_quota: -1,
      memory_limit_in_bytes: -1,
    });
    expect(await kernelOf(containerId(0), stored({}))).toBeUndefined();
  });
});
