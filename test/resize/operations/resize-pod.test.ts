import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { CgroupTree } from '../../../src/cgroups/index.ts';
import { type Bytes, bytes, cpuShares, microseconds } from '../../../src/core/quantities/index.ts';
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

const resize = (wanted: DesiredPod, options: object = {}) =>
  resizePod(runtime.context, SANDBOX, wanted, { dryRun: false, deadline: Date.now() + 60_000, ...options });

const limits = (): number[] => [0, 1].map((index) => runtime.limitOf(index));
const short = (text: string): string => text.replace(/container (\d)\d+/, 'container $1');

describe('a whole pod at once', () => {
  test('grows: the pod first, then its containers', async () => {
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

  test('moves memory from one container to another: down before up, and nothing at the pod', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    const { steps } = await resize(desired({ c0: { memory: mi(180) }, c1: { memory: mi(120) } }));
    expect(steps.map(({ step }) => short(describeStep(step)))).toEqual([
      `container 1 memory.max ${200 * MiB} -> ${120 * MiB}`,
      `container 0 memory.max ${100 * MiB} -> ${180 * MiB}`,
    ]);
    expect(runtime.read('memory.max')).toBe(String(300 * MiB));
  });

  test('memory down and CPU up: two updates, and each of the pod on its own side', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    const { steps } = await resize(desired({ c1: { memory: mi(100), cpu: cpu(30_000) } }));
    expect(steps.map(({ step }) => short(describeStep(step)))).toEqual([
      'pod cpu.max 20000 100000 -> 40000 100000',
      `container 1 memory.max ${200 * MiB} -> ${100 * MiB}`,
      'container 1 cpu.max 10000 100000 -> 30000 100000',
      `pod memory.max ${300 * MiB} -> ${200 * MiB}`,
    ]);
  });

  test('the shares that the runtime has taken are among what holds afterwards', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    const { before, after } = await resize(desired({ c0: { shares: cpuShares(51) } }));
    expect(before.containers.map(({ shares }) => shares)).toEqual([0, 0]);
    expect(after.containers.map(({ shares }) => shares)).toEqual([51, 0]);
  });

  test('the same again has nothing to do', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    const wanted = desired({ c0: { memory: mi(150) } });
    await resize(wanted);
    expect((await resize(wanted)).steps).toEqual([]);
  });

  test('once it is known where a container lies, the backend describes it once for a resize', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    await resize(desired({ c0: { memory: mi(150) }, c1: { memory: mi(250) } }));
    runtime.calls.length = 0;
    await resize(desired({ c0: { memory: mi(120) }, c1: { memory: mi(300) } }));
    expect(limits()).toEqual([120 * MiB, 300 * MiB]);
    expect(runtime.calls.filter((call) => call === 'ContainerStatus')).toHaveLength(2);
  });

  test('a runtime that says yes and does nothing is found out, also where it is known', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    await resize(desired({ c0: { memory: mi(150) } }));
    runtime.on('UpdateContainerResources', () => Buffer.alloc(0));
    await expect(resize(desired({ c0: { memory: mi(170) } }))).rejects.toMatchObject({ reason: 'CGROUP_WRITE_FAILED' });
    expect(limits()).toEqual([150 * MiB, 200 * MiB]);
    expect(runtime.read('memory.max')).toBe(String(350 * MiB));
  });

  test('a runtime without pod-level updates is told of the pod once', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    runtime.on('UpdatePodSandboxResources', () => {
      throw new RuntimeFailure(status.UNIMPLEMENTED, 'unknown method');
    });
    await resize(desired({ c0: { memory: mi(150) } }));
    await resize(desired({ c0: { memory: mi(160) } }));
    expect(runtime.calls.filter((method) => method === 'UpdatePodSandboxResources')).toHaveLength(1);
    expect(limits()).toEqual([160 * MiB, 200 * MiB]);
  });

  test('one that fails otherwise is told again', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    runtime.on('UpdatePodSandboxResources', () => {
      throw new RuntimeFailure(status.INTERNAL, 'out of order');
    });
    await resize(desired({ c0: { memory: mi(150) } }));
    await resize(desired({ c0: { memory: mi(160) } }));
    expect(runtime.calls.filter((method) => method === 'UpdatePodSandboxResources')).toHaveLength(2);
  });

  test('down: what memory.high has to become again is in the record that the transaction begins with', async () => {
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

  test('a dry run says the steps and what would be, and changes nothing', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    const { steps, after } = await resize(desired({ c0: { memory: mi(150) } }), { dryRun: true });
    expect(steps).toHaveLength(2);
    expect(after).toMatchObject({ memory: 350 * MiB, containers: [{ memory: 150 * MiB }, { memory: 200 * MiB }] });
    expect([runtime.read('memory.max'), ...limits()]).toEqual([String(300 * MiB), 100 * MiB, 200 * MiB]);
  });
});

describe('all or nothing', () => {
  test('the runtime refuses the second container: the first and the pod are as before', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    runtime.applyUpdates((id) => id === containerId(1));
    await expect(resize(desired({ c0: { memory: mi(150) }, c1: { memory: mi(250) } }))).rejects.toMatchObject({
      code: 5,
    });
    expect([runtime.read('memory.max'), ...limits()]).toEqual([String(300 * MiB), 100 * MiB, 200 * MiB]);
  });

  test('a runtime that says yes and does nothing is found out', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    runtime.on('UpdateContainerResources', () => Buffer.alloc(0));
    await expect(resize(desired({ c0: { memory: mi(150) } }))).rejects.toMatchObject({
      reason: 'CGROUP_WRITE_FAILED',
      context: { asked: String(150 * MiB), found: String(100 * MiB) },
    });
    expect(runtime.read('memory.max')).toBe(String(300 * MiB));
  });

  test('a runtime that goes in the middle: a container that cannot be brought back keeps the room it was given, until it can', async () => {
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

  test('a pod that had less than its containers, on purpose, goes back to that', async () => {
    pod(String(250 * MiB), [100 * MiB, 200 * MiB]);
    runtime.applyUpdates(() => true);
    const wanted = desired({ c0: { memory: mi(150) } }, { pod: { memory: mi(280), cpu: cpu(15_000) } });
    await expect(resize(wanted)).rejects.toMatchObject({ code: 5 });
    expect([runtime.read('memory.max'), runtime.read('cpu.max')]).toEqual([String(250 * MiB), '20000 100000']);
  });

  test('no time left: nothing begins', async () => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    const late = resize(desired({ c0: { memory: mi(150) } }), { deadline: Date.now() - 1 });
    await expect(late).rejects.toMatchObject({ code: 4, reason: 'DEADLINE' });
    expect(runtime.read('memory.max')).toBe(String(300 * MiB));
  });

  test('time that is over in the middle: what was done is undone', async () => {
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

describe('refused before anything changes', () => {
  beforeEach(() => pod(String(300 * MiB), [100 * MiB, 200 * MiB]));
  afterEach(() => expect([runtime.read('memory.max'), ...limits()]).toEqual([String(300 * MiB), 100 * MiB, 200 * MiB]));

  test.each([
    ['a container that it has not', { c9: { memory: mi(1) } }, {}, { code: 3, reason: 'UNKNOWN_CONTAINER' }],
    [
      'a volume that it has not',
      {},
      { volumes: new Map([['cache', { kind: 'absolute', bytes: mi(1) }]]) },
      { code: 3, reason: 'UNKNOWN_VOLUME' },
    ],
    ['more memory than the node has', { c0: { memory: bytes(2 ** 50) } }, {}, { code: 9, reason: 'EXCEEDS_NODE' }],
    ['more CPUs than the node has', { c0: { cpu: cpu(2 ** 40) } }, {}, { code: 9, reason: 'EXCEEDS_NODE' }],
    ['less than is in use', { c0: { memory: bytes(1000) } }, {}, { code: 9, reason: 'MEMORY_NOT_RECLAIMABLE' }],
    ['a pod limit under its use', {}, { pod: { memory: bytes(1000) } }, { code: 9, reason: 'MEMORY_NOT_RECLAIMABLE' }],
  ])('%s', async (_name, containers, more, error) => {
    await expect(resize(desired(containers, more as Partial<DesiredPod>))).rejects.toMatchObject(error);
  });

  test('more than a cgroup above the pod allows', async () => {
    runtime.writeCgroup('/kubepods', { 'memory.max': String(500 * MiB), 'cpu.max': 'max 100000' });
    await expect(resize(desired({ c0: { memory: mi(600) } }))).rejects.toMatchObject({
      reason: 'EXCEEDS_NODE',
      context: { found: String(500 * MiB) },
    });
  });
});

describe('a request above the limit', () => {
  const fits = (containers: object, more: Partial<DesiredPod> = {}) => {
    pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    return resize(desired(containers, more));
  };
  const memory = (mebibytes: number) => ({ memoryRequests: { containers: { c0: mi(mebibytes) } } });

  test('that stays is refused with both', async () => {
    const message = 'containers["c0"].requests.memory: "101Mi": the request is above the limit, 100Mi';
    await expect(fits({ c0: {} }, memory(101))).rejects.toThrow(message);
    await expect(fits({ c0: { shares: 104 } })).rejects.toThrow('containers["c0"].requests.cpu: "102m"');
    await expect(fits({}, { memoryRequests: { pod: mi(301), containers: {} } })).rejects.toMatchObject({
      ...{ code: 3, reason: 'INVALID_VALUE' },
      context: { field: 'resources.requests.memory' },
    });
  });

  test('that is the same, or that goes up with it, is none', async () => {
    expect((await fits({ c0: {} }, memory(100))).steps).toEqual([]);
    await fits({ c0: { memory: mi(150) } }, memory(150));
    await fits({ c0: { memory: mi(150) } }, { memoryRequests: { pod: mi(350), containers: {} } });
  });
});

test('on a node with cgroup v1, where the pod has no cgroup that could be resized: refused, and calls pass', async () => {
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

test('a pod that is not there', async () => {
  runtime.on('PodSandboxStatus', () => {
    throw new Error('no such pod');
  });
  await expect(resize(desired({}))).rejects.toMatchObject({ code: 5, reason: 'UNKNOWN_POD' });
});

test('a container that has ended: the runtime stores the values, no cgroup changes', async () => {
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

test('an init container that has run to its end: refused, and the others with it', async () => {
  pod(String(300 * MiB), [100 * MiB, 200 * MiB]);
  const ended = 'e'.repeat(64);
  runtime.context.registry.learnContainer({ containerId: ended, sandboxId: SANDBOX, name: 'init' });
  runtime.describeContainer(ended, {
    ...{ metadata: { name: 'init' }, state: 2, created_at: -20n, finished_at: -10n },
    resources: { linux: { memory_limit_in_bytes: BigInt(50 * MiB) } },
  });
  await expect(resize(desired({ init: { memory: mi(80) }, c0: { memory: mi(80) } }))).rejects.toMatchObject({
    ...{ code: 9, reason: 'INIT_CONTAINER_ENDED' },
    context: { container: 'init' },
  });
  expect(limits()).toEqual([100 * MiB, 200 * MiB]);
});
