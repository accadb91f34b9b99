import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { CgroupTree } from '../../../src/cgroups/index.ts';
import { type Bytes, bytes, cpuShares, microseconds } from '../../../src/core/quantities/index.ts';
import { encode } from '../../../src/runtime/index.ts';
import { FakeRuntime, RuntimeFailure, SANDBOX, containerId, containerUpdate } from '../../support/fake-runtime.ts';
import { describeStep } from '../../../src/resize/model/step.ts';
import type { DesiredPod } from '../../../src/resize/model/resize-request.ts';
import { resizePod } from '../../../src/resize/operations/resize-pod.ts';
import { updateContainer } from '../../../src/resize/operations/update-container.ts';

const MiB = 1024 * 1024;
const mi = (count: number): Bytes => bytes(count * MiB);
const cpu = (quota: number) => ({ quota: microseconds(quota), period: microseconds(100_000) });

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.applyUpdates();
});
afterEach(() => runtime.close());

function pod(limit: string, containers: readonly number[]): void {
  runtime.makePod(limit, containers);
  containers.forEach((_, index) =>
    runtime.context.registry.learnContainer({ containerId: containerId(index), sandboxId: SANDBOX, name: `c${index}` }),
  );
}

const desired = (containers: object, more: Partial<DesiredPod> = {}): DesiredPod => ({
  pod: {},
  containers: new Map(Object.entries(containers)),
  volumes: new Map(),
  ...more,
});

const resize = (target: DesiredPod, options: object = {}) =>
  resizePod(runtime.context, SANDBOX, target, { dryRun: false, deadline: Date.now() + 60_000, ...options });

const limits = (): number[] => [0, 1].map((index) => runtime.limitOf(index));
const short = (text: string): string => text.replace(/container (\d)\d+/, 'container $1');

describe('ResizePod', () => {
  test('raises the pod before its containers', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    const { steps, before, after } = await resize(desired({ c0: { memory: mi(150) }, c1: { memory: mi(250) } }));
    expect(steps.map(({ step }) => short(describeStep(step)))).toEqual([
      `pod memory.max ${300 * MiB} -> ${400 * MiB}`,
      `container 0 memory.max ${100 * MiB} -> ${150 * MiB}`,
      `container 1 memory.max ${200 * MiB} -> ${250 * MiB}`,
    ]);
    expect(limits()).toEqual([150 * MiB, 250 * MiB]);
    expect([before.memory, after.memory]).toEqual([300 * MiB, 400 * MiB]);
  });

  test('moves memory between containers: lowers one before it raises the other, and leaves the pod limit', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    const { steps } = await resize(desired({ c0: { memory: mi(180) }, c1: { memory: mi(120) } }));
    expect(steps.map(({ step }) => short(describeStep(step)))).toEqual([
      `container 1 memory.max ${200 * MiB} -> ${120 * MiB}`,
      `container 0 memory.max ${100 * MiB} -> ${180 * MiB}`,
    ]);
    expect(runtime.read('memory.max')).toBe(String(300 * MiB));
  });

  test('applies memory down and CPU up as two updates, with the pod CPU first and the pod memory last', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    const { steps } = await resize(desired({ c1: { memory: mi(100), cpu: cpu(30_000) } }));
    expect(steps.map(({ step }) => short(describeStep(step)))).toEqual([
      'pod cpu.max 20000 100000 -> 40000 100000',
      `container 1 memory.max ${200 * MiB} -> ${100 * MiB}`,
      'container 1 cpu.max 10000 100000 -> 30000 100000',
      `pod memory.max ${300 * MiB} -> ${200 * MiB}`,
    ]);
  });

  test('returns the shares that the runtime has stored', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    const { before, after } = await resize(desired({ c0: { shares: cpuShares(51) } }));
    expect(before.containers.map(({ shares }) => shares)).toEqual([0, 0]);
    expect(after.containers.map(({ shares }) => shares)).toEqual([51, 0]);
  });

  test('has no steps when it is repeated', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    const target = desired({ c0: { memory: mi(150) } });
    await resize(target);
    expect((await resize(target)).steps).toEqual([]);
  });

  test('asks the backend once per container for its status when the cgroup is known', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    await resize(desired({ c0: { memory: mi(150) }, c1: { memory: mi(250) } }));
    runtime.calls.length = 0;
    await resize(desired({ c0: { memory: mi(120) }, c1: { memory: mi(300) } }));
    expect(limits()).toEqual([120 * MiB, 300 * MiB]);
    expect(runtime.calls.filter((call) => call === 'ContainerStatus')).toHaveLength(2);
  });

  test('fails when the runtime acknowledges an update of a known container without applying it', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    await resize(desired({ c0: { memory: mi(150) } }));
    runtime.on('UpdateContainerResources', () => Buffer.alloc(0));
    await expect(resize(desired({ c0: { memory: mi(170) } }))).rejects.toMatchObject({ reason: 'CGROUP_WRITE_FAILED' });
    expect(limits()).toEqual([150 * MiB, 200 * MiB]);
    expect(runtime.read('memory.max')).toBe(String(350 * MiB));
  });

  test('calls UpdatePodSandboxResources once on a runtime that lacks it', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    runtime.on('UpdatePodSandboxResources', () => {
      throw new RuntimeFailure(status.UNIMPLEMENTED, 'unknown method');
    });
    await resize(desired({ c0: { memory: mi(150) } }));
    await resize(desired({ c0: { memory: mi(160) } }));
    expect(runtime.calls.filter((method) => method === 'UpdatePodSandboxResources')).toHaveLength(1);
    expect(limits()).toEqual([160 * MiB, 200 * MiB]);
  });

  test('calls UpdatePodSandboxResources again on a runtime that failed with another error', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    runtime.on('UpdatePodSandboxResources', () => {
      throw new RuntimeFailure(status.INTERNAL, 'out of order');
    });
    await resize(desired({ c0: { memory: mi(150) } }));
    await resize(desired({ c0: { memory: mi(160) } }));
    expect(runtime.calls.filter((method) => method === 'UpdatePodSandboxResources')).toHaveLength(2);
  });

  test('records the previous memory.high at the begin of a transaction that lowers memory', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    runtime.writeFile(`/kubepods/pod1/${containerId(1)}`, 'memory.high', String(199 * MiB));
    const write = vi.spyOn(await runtime.journal, 'write');
    await resize(desired({ c0: { memory: mi(90) }, c1: { memory: mi(180) } }));
    expect(limits()).toEqual([90 * MiB, 180 * MiB]);
    expect(write.mock.calls.map(([record]) => record.transaction?.highs)).toEqual([
      [
        { cgroup: `/kubepods/pod1/${containerId(0)}`, memoryHigh: 'max' },
        { cgroup: `/kubepods/pod1/${containerId(1)}`, memoryHigh: 199 * MiB },
        { cgroup: '/kubepods/pod1', memoryHigh: 'max' },
      ],
    ]);
    expect(runtime.read(`${containerId(0)}/memory.high`)).toBe('max');
  });

  test('returns the steps and the final values of a dry run, and changes nothing', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    const { steps, after } = await resize(desired({ c0: { memory: mi(150) } }), { dryRun: true });
    expect(steps).toHaveLength(2);
    expect(after).toMatchObject({ memory: 350 * MiB, containers: [{ memory: 150 * MiB }, { memory: 200 * MiB }] });
    expect([runtime.read('memory.max'), ...limits()]).toEqual([String(300 * MiB), 100 * MiB, 200 * MiB]);
  });
});

describe('the rollback of ResizePod', () => {
  test('restores the first container and the pod when the runtime rejects the second container', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    runtime.applyUpdates((id) => id === containerId(1));
    await expect(resize(desired({ c0: { memory: mi(150) }, c1: { memory: mi(250) } }))).rejects.toMatchObject({
      code: 5,
    });
    expect([runtime.read('memory.max'), ...limits()]).toEqual([String(300 * MiB), 100 * MiB, 200 * MiB]);
  });

  test('restores the pod when the runtime acknowledges an update without applying it', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    runtime.on('UpdateContainerResources', () => Buffer.alloc(0));
    await expect(resize(desired({ c0: { memory: mi(150) } }))).rejects.toMatchObject({
      reason: 'CGROUP_WRITE_FAILED',
      context: { asked: String(150 * MiB), found: String(100 * MiB) },
    });
    expect(runtime.read('memory.max')).toBe(String(300 * MiB));
  });

  test('leaves the pod raised for a container that cannot be rolled back, until the next request recovers it', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    let calls = 0;
    runtime.wrapResponder('UpdateContainerResources', (request, obey) => {
      calls += 1;
      if (calls > 1) throw new RuntimeFailure(status.UNAVAILABLE, 'gone');
      return obey(request);
    });
    const both = { memory: mi(250), cpu: cpu(30_000) };
    await expect(resize(desired({ c0: both, c1: both }))).rejects.toMatchObject({ reason: 'UNDO_FAILED' });
    const found = () => [runtime.read('memory.max'), runtime.read('cpu.max'), ...limits()];
    expect(found()).toEqual([String(500 * MiB), '60000 100000', 250 * MiB, 200 * MiB]);
    const undos = runtime.counted.families.find(
      ({ description }) => description.name === 'cri_resize_shim_undos_total',
    );
    expect([...(undos?.series() ?? [])]).toContainEqual(expect.objectContaining({ labels: ['failed'], value: 1 }));
    runtime.applyUpdates();
    await resize(desired({ c1: { memory: mi(210) } }));
    expect(found()).toEqual([String(310 * MiB), '20000 100000', 100 * MiB, 210 * MiB]);
  });

  test('restores all containers when the update of one of them is applied but exceeds its deadline', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    runtime.applyUpdates();
    let failed = false;
    runtime.wrapResponder('UpdateContainerResources', (request, obey) => {
      const { container_id, linux } = runtime.decodeUpdate(request);
      if (container_id !== containerId(1) || failed) return obey(request);
      failed = true;
      runtime.writeFile(`/kubepods/pod1/${container_id}`, 'memory.max', String(linux?.memory_limit_in_bytes));
      throw new RuntimeFailure(status.DEADLINE_EXCEEDED, 'context deadline exceeded');
    });
    const changed = { memory: mi(250), cpu: cpu(30_000) };
    await expect(resize(desired({ c0: changed, c1: changed }))).rejects.toMatchObject({ code: 4 });
    expect(limits()).toEqual([100 * MiB, 200 * MiB]);
    expect([runtime.read('memory.max'), runtime.read('cpu.max')]).toEqual([String(300 * MiB), '20000 100000']);
  });

  test('restores a pod limit that was below the sum of its containers', async () => {
    pod(String(250 * MiB), [100 * MiB, 200 * MiB]);
    runtime.applyUpdates(() => true);
    const target = desired({ c0: { memory: mi(150) } }, { pod: { memory: mi(280), cpu: cpu(15_000) } });
    await expect(resize(target)).rejects.toMatchObject({ code: 5 });
    expect([runtime.read('memory.max'), runtime.read('cpu.max')]).toEqual([String(250 * MiB), '20000 100000']);
  });

  test('is not needed when the deadline is over before the first step', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    const late = resize(desired({ c0: { memory: mi(150) } }), { deadline: Date.now() - 1 });
    await expect(late).rejects.toMatchObject({ code: 4, reason: 'DEADLINE' });
    expect(runtime.read('memory.max')).toBe(String(300 * MiB));
  });

  test('restores the values when the deadline is over in the middle', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    const deadline = Date.now() + 60_000;
    const real = Date.now;
    const late = resize(desired({ c0: { memory: mi(150) }, c1: { memory: mi(250) } }), {
      deadline,
      onStep: () => (Date.now = () => deadline),
    });
    await late.then(
      () => expect.unreachable(),
      (error: unknown) => expect(error).toMatchObject({ reason: 'DEADLINE' }),
    );
    Date.now = real;
    expect([runtime.read('memory.max'), ...limits()]).toEqual([String(300 * MiB), 100 * MiB, 200 * MiB]);
  });
});

describe('a ResizePod that is rejected before any change', () => {
  beforeEach(() => pod(String(300 * MiB), [100 * MiB, 200 * MiB]));
  afterEach(() => expect([runtime.read('memory.max'), ...limits()]).toEqual([String(300 * MiB), 100 * MiB, 200 * MiB]));

  test.each([
    ['an unknown container', { c9: { memory: mi(1) } }, {}, { code: 3, reason: 'UNKNOWN_CONTAINER' }],
    [
      'an unknown volume',
      {},
      { volumes: new Map([['cache', { kind: 'absolute', bytes: mi(1) }]]) },
      { code: 3, reason: 'UNKNOWN_VOLUME' },
    ],
    [
      'a container limit below unreclaimable memory',
      { c0: { memory: bytes(1000) } },
      {},
      { code: 9, reason: 'MEMORY_NOT_RECLAIMABLE' },
    ],
    [
      'a pod limit below unreclaimable memory',
      {},
      { pod: { memory: bytes(1000) } },
      { code: 9, reason: 'MEMORY_NOT_RECLAIMABLE' },
    ],
  ])('because of %s', async (_name, containers, more, error) => {
    await expect(resize(desired(containers, more as Partial<DesiredPod>))).rejects.toMatchObject(error);
  });
});

describe('a limit above that of a cgroup above the pod', () => {
  const limitOf = (cgroup: string, mebibytes: number): void =>
    runtime.writeCgroup(cgroup, { 'memory.max': String(mebibytes * MiB), 'cpu.max': 'max 100000' });

  test('is allowed where the cgroup is kubelet’s: Kubernetes allows limits above what the node has for pods', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    limitOf('/kubepods', 500);
    await resize(desired({ c0: { memory: mi(600) } }, { pod: { memory: mi(900) } }));
    expect(limits()).toEqual([600 * MiB, 200 * MiB]);
    expect(runtime.read('memory.max')).toBe(String(900 * MiB));
  });

  /** Moves the pod below a cgroup that is not kubelet's. */
  function inAnother(memory: number): void {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    mkdirSync(join(runtime.cgroupRoot, 'workloads'));
    renameSync(join(runtime.cgroupRoot, 'kubepods'), join(runtime.cgroupRoot, 'workloads/kubepods'));
    limitOf('/workloads', memory);
    const metadata = { name: 'web', uid: 'uid-1', namespace: 'default' };
    runtime.describePod({
      config: { metadata, annotations: {}, linux: { cgroup_parent: '/workloads/kubepods/pod1' } },
    });
    for (const index of [0, 1])
      writeFileSync(
        join(runtime.procRoot, String(100 + index), 'cgroup'),
        `0::/workloads/kubepods/pod1/${containerId(index)}\n`,
      );
  }

  test('is rejected otherwise, for a container and for the pod', async () => {
    inAnother(500);
    await expect(resize(desired({ c0: { memory: mi(600) } }))).rejects.toMatchObject({
      ...{ code: 9, reason: 'EXCEEDS_NODE', context: { found: String(500 * MiB) } },
      message: `container c0: memory.max ${600 * MiB} is more than ${500 * MiB}: cgroup /workloads allows no more`,
    });
    await expect(resize(desired({}, { pod: { memory: mi(501) } }))).rejects.toMatchObject({
      ...{ reason: 'EXCEEDS_NODE', message: expect.stringContaining('pod default/web: memory.max') as string },
    });
    await expect(resize(desired({}, { pod: { memory: mi(500) } }), { dryRun: true })).resolves.toBeDefined();
  });

  test('is allowed where it does not rise', async () => {
    inAnother(150);
    const repeated = { c0: { memory: mi(100) }, c1: { memory: mi(200) } };
    await expect(resize(desired(repeated, { pod: { memory: mi(300) } }), { dryRun: true })).resolves.toBeDefined();
    await expect(resize(desired({ c1: { memory: mi(190) } }), { dryRun: true })).resolves.toBeDefined();
    await expect(resize(desired({ c1: { memory: mi(201) } }), { dryRun: true })).rejects.toMatchObject({
      reason: 'EXCEEDS_NODE',
    });
  });
});

describe('a resource request above the limit', () => {
  const fits = (containers: object, more: Partial<DesiredPod> = {}) => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    return resize(desired(containers, more));
  };
  const memory = (mebibytes: number) => ({ memoryRequests: { containers: { c0: mi(mebibytes) } } });

  test('is rejected with both values when the limit stays', async () => {
    const message = 'containers["c0"].requests.memory: "101Mi": the request is above the limit, 100Mi';
    await expect(fits({ c0: {} }, memory(101))).rejects.toThrow(message);
    await expect(fits({ c0: { shares: 104 } })).rejects.toThrow('containers["c0"].requests.cpu: "102m"');
    await expect(fits({}, { memoryRequests: { pod: mi(301), containers: {} } })).rejects.toMatchObject({
      ...{ code: 3, reason: 'INVALID_VALUE' },
      context: { field: 'resources.requests.memory' },
    });
  });

  test('is not found when it equals the limit, or when both are raised', async () => {
    expect((await fits({ c0: {} }, memory(100))).steps).toEqual([]);
    await fits({ c0: { memory: mi(150) } }, memory(150));
    await fits({ c0: { memory: mi(150) } }, { memoryRequests: { pod: mi(350), containers: {} } });
  });
});

test('on a node with cgroup v1 ResizePod is rejected, and UpdateContainerResources is forwarded', async () => {
  pod(String(300 * MiB), [100 * MiB]);
  const root = mkdtempSync(join(tmpdir(), 'cgroup-v1-'));
  for (const controller of ['memory', 'cpu,cpuacct'])
    mkdirSync(join(root, controller, 'kubepods/pod1', containerId(0)), { recursive: true });
  const context = { ...runtime.context, tree: new CgroupTree(root) };
  try {
    const options = { dryRun: false, deadline: Date.now() + 60_000 };
    await expect(resizePod(context, SANDBOX, desired({ c0: { memory: mi(150) } }), options)).rejects.toMatchObject({
      code: 9,
      reason: 'CGROUP_UNAVAILABLE',
    });
    const answer = Buffer.from('the answer of the runtime');
    const update = containerUpdate(containerId(0), { memory_limit_in_bytes: BigInt(150 * MiB) });
    expect(await updateContainer(context, update, () => Promise.resolve(answer))).toBe(answer);
    expect(runtime.failOpens).toContain('unreadable_state');
  } finally {
    rmSync(root, { recursive: true });
  }
});

test('ResizePod of an unknown pod is rejected', async () => {
  runtime.on('PodSandboxStatus', () => {
    throw new Error('no such pod');
  });
  await expect(resize(desired({}))).rejects.toMatchObject({ code: 5, reason: 'UNKNOWN_POD' });
});

test('the runtime stores the values of an ended container, and no cgroup changes', async () => {
  pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
  const ended = 'e'.repeat(64);
  runtime.context.registry.learnContainer({ containerId: ended, sandboxId: SANDBOX, name: 'init' });
  runtime.describeContainer(ended, {
    metadata: { name: 'init' },
    state: 2,
    resources: { linux: { memory_limit_in_bytes: BigInt(50 * MiB) } },
  });
  const stored: bigint[] = [];
  runtime.on('UpdateContainerResources', (request) => {
    stored.push(runtime.decodeUpdate(request).linux?.memory_limit_in_bytes ?? 0n);
    return Buffer.alloc(0);
  });
  const { steps } = await resize(desired({ init: { memory: mi(80) } }));
  expect(steps).toHaveLength(1);
  expect(stored).toEqual([BigInt(80 * MiB)]);
  expect(runtime.read('memory.max')).toBe(String(300 * MiB));
});

describe('a resize of a container of another kind', () => {
  const init = 'e'.repeat(64);
  /** Adds a container that is not one of c0 and c1, which kubelet's state lists. */
  const initContainer = (
    state: number,
    limits: Record<string, bigint> = { memory_limit_in_bytes: BigInt(50 * MiB) },
  ) => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    runtime.context.registry.learnContainer({ containerId: init, sandboxId: SANDBOX, name: 'init' });
    runtime.describeContainer(init, {
      ...{ metadata: { name: 'init' }, state, created_at: -20n, finished_at: -10n },
      resources: { linux: limits },
    });
  };
  const kubeletKnows = (...names: string[]): void => {
    const containers = new Map(names.map((name) => [name, { memory: mi(100) }]));
    runtime.allocated.set('uid-1', { containers, pod: undefined, isComplete: true });
  };
  /** ListContainers returns this container and the running ones. */
  const lists = (state: number): void =>
    runtime.on('ListContainers', () =>
      encode('ListContainersResponse', {
        containers: [
          { id: init, metadata: { name: 'init' }, state, created_at: 1n },
          { id: containerId(0), metadata: { name: 'c0' }, state: 1, created_at: 2n },
          { id: containerId(1), metadata: { name: 'c1' }, state: 1, created_at: 3n },
        ],
      }),
    );

  test('is rejected as a whole for an ended init container', async () => {
    initContainer(2);
    lists(2);
    kubeletKnows('c0', 'c1');
    await expect(resize(desired({ init: { memory: mi(80) }, c0: { memory: mi(80) } }))).rejects.toMatchObject({
      ...{ code: 9, reason: 'INIT_CONTAINER_ENDED' },
      context: { container: 'init' },
    });
    expect(limits()).toEqual([100 * MiB, 200 * MiB]);
  });

  test('is rejected for a running init container that kubelet up to 1.35 does not resize', async () => {
    initContainer(1);
    lists(1);
    // c2 waits for it.
    kubeletKnows('c0', 'c1', 'c2');
    await expect(resize(desired({ init: { memory: mi(80) } }))).rejects.toMatchObject({
      ...{ code: 9, reason: 'INIT_CONTAINER_NOT_RESIZABLE' },
      context: { container: 'init' },
    });
  });

  test('is rejected for an ephemeral container', async () => {
    initContainer(1, {});
    lists(1);
    kubeletKnows('c0', 'c1');
    await expect(resize(desired({ init: { memory: mi(80) } }))).rejects.toMatchObject({
      ...{ code: 9, reason: 'EPHEMERAL_CONTAINER_NOT_RESIZABLE' },
      context: { container: 'init' },
    });
  });

  test('A9: is accepted for an ordinary container that ended with 0 before the others were created', async () => {
    initContainer(2);
    lists(2);
    const stored: bigint[] = [];
    runtime.on('UpdateContainerResources', (request) => {
      stored.push(runtime.decodeUpdate(request).linux?.memory_limit_in_bytes ?? 0n);
      return Buffer.alloc(0);
    });
    await resize(desired({ init: { memory: mi(80) } }));
    expect(stored).toEqual([BigInt(80 * MiB)]);
    // kubelet lists it. Since 1.36 it lists init containers too, which cannot be distinguished from an ordinary one.
    kubeletKnows('init', 'c0', 'c1');
    await resize(desired({ init: { memory: mi(90) } }));
    expect(stored).toEqual([BigInt(80 * MiB), BigInt(90 * MiB)]);
  });
});
