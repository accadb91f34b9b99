import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { CgroupTree } from '../../../src/cgroups/tree.ts';
import { bytes, cpuShares } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { encode } from '../../../src/runtime/codec.ts';
import { resizePod } from '../../../src/sandbox/operations/resize-pod.ts';
import { updateContainer } from '../../../src/sandbox/operations/update-container.ts';
import type { Step } from '../../../src/sandbox/plan/step.ts';
import { describeStep } from '../../../src/sandbox/plan/step.ts';
import { lockKeyOf } from '../../../src/sandbox/pods/pod-identity.ts';
import { recover } from '../../../src/sandbox/transaction/recover.ts';
import { containerId, containerUpdate, FakeRuntime, RuntimeFailure, SANDBOX } from '../../support/fake-runtime.ts';
import { FakeStoringRuntime } from '../../support/fake-storing-runtime.ts';
import { criMi, mi } from '../../support/quantities/mebibytes.ts';
import { cpu, desired, ResizedPod } from '../../support/resize/resized-pod.ts';

let runtime: FakeRuntime;

describe('ResizePod and its rollback', () => {
  let web: ResizedPod;

  beforeEach(async () => {
    web = await ResizedPod.start();
    ({ runtime } = web);
  });

  afterEach(() => {
    vi.useRealTimers();
    return web.close();
  });

  const short = (text: string): string => text.replace(/container (\d)\d+/, 'container $1');

  describe('ResizePod', () => {
    test('ResizePod raises the pod limit before its containers', async () => {
      web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
      const { steps, before, after } = await web.resize(desired({ c0: { memory: mi(150) }, c1: { memory: mi(250) } }));
      expect(steps.map(({ step }) => short(describeStep(step)))).toEqual([
        `pod memory.max ${300 * MiB} -> ${400 * MiB}`,
        `container 0 memory.max ${100 * MiB} -> ${150 * MiB}`,
        `container 1 memory.max ${200 * MiB} -> ${250 * MiB}`,
      ]);
      expect(web.limits()).toEqual([150 * MiB, 250 * MiB]);
      expect([before.memory, after.memory]).toEqual([300 * MiB, 400 * MiB]);
    });

    test('ResizePod does not register a pod again that is removed during the resize', async () => {
      web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
      const { registry } = runtime.node;
      runtime.wrapResponder('UpdateContainerResources', (request, obey) => {
        registry.forgetPod(SANDBOX);
        return obey(request);
      });
      await web.resize(desired({ c0: { memory: mi(150) } }, { pod: { shares: cpuShares(200) } }));
      expect(registry.pods).toEqual([]);
    });

    test('ResizePod moves memory: it lowers one container before it raises the other, and keeps the pod limit', async () => {
      web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
      const { steps } = await web.resize(desired({ c0: { memory: mi(180) }, c1: { memory: mi(120) } }));
      expect(steps.map(({ step }) => short(describeStep(step)))).toEqual([
        `container 1 memory.max ${200 * MiB} -> ${120 * MiB}`,
        `container 0 memory.max ${100 * MiB} -> ${180 * MiB}`,
      ]);
      expect(runtime.read('memory.max')).toBe(String(300 * MiB));
    });

    test("lowers memory and raises CPU in two updates, with the pod's CPU limit first and its memory limit last", async () => {
      web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
      const { steps } = await web.resize(desired({ c1: { memory: mi(100), cpu: cpu(30_000) } }));
      expect(steps.map(({ step }) => short(describeStep(step)))).toEqual([
        'pod cpu.max 20000 100000 -> 40000 100000',
        `container 1 memory.max ${200 * MiB} -> ${100 * MiB}`,
        'container 1 cpu.max 10000 100000 -> 30000 100000',
        `pod memory.max ${300 * MiB} -> ${200 * MiB}`,
      ]);
    });

    test('returns the shares that the runtime has stored', async () => {
      web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
      const { before, after } = await web.resize(desired({ c0: { shares: cpuShares(51) } }));
      expect(before.containers.map(({ shares }) => shares)).toEqual([0, 0]);
      expect(after.containers.map(({ shares }) => shares)).toEqual([51, 0]);
    });

    test('KEP-1287: a repeated ResizePod needs no steps because its values are in force', async () => {
      web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
      const target = desired({ c0: { memory: mi(150) } });
      await web.resize(target);
      expect((await web.resize(target)).steps).toEqual([]);
    });

    test('asks the backend once per container for its status when the cgroup is known', async () => {
      web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
      await web.resize(desired({ c0: { memory: mi(150) }, c1: { memory: mi(250) } }));
      runtime.calls.length = 0;
      await web.resize(desired({ c0: { memory: mi(120) }, c1: { memory: mi(300) } }));
      expect(web.limits()).toEqual([120 * MiB, 300 * MiB]);
      expect(runtime.calls.filter((call) => call === 'ContainerStatus')).toHaveLength(2);
    });

    test('ResizePod fails when the runtime acknowledges an update of a known container without applying it', async () => {
      web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
      await web.resize(desired({ c0: { memory: mi(150) } }));
      runtime.on('UpdateContainerResources', () => Buffer.alloc(0));
      await expect(web.resize(desired({ c0: { memory: mi(170) } }))).rejects.toMatchObject({
        reason: 'CGROUP_WRITE_FAILED',
      });
      expect(web.limits()).toEqual([150 * MiB, 200 * MiB]);
      expect(runtime.read('memory.max')).toBe(String(350 * MiB));
    });

    test('KEP-1287: UpdatePodSandboxResources is called once on a runtime that lacks it, and the resizes succeed', async () => {
      web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
      runtime.on('UpdatePodSandboxResources', () => {
        throw new RuntimeFailure(status.UNIMPLEMENTED, 'unknown method');
      });
      await web.resize(desired({ c0: { memory: mi(150) } }));
      await web.resize(desired({ c0: { memory: mi(160) } }));
      expect(runtime.calls.filter((method) => method === 'UpdatePodSandboxResources')).toHaveLength(1);
      expect(web.limits()).toEqual([160 * MiB, 200 * MiB]);
    });

    test('KEP-1287: a runtime that fails UpdatePodSandboxResources does not fail a ResizePod, and is called again by the next one', async () => {
      web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
      runtime.on('UpdatePodSandboxResources', () => {
        throw new RuntimeFailure(status.INTERNAL, 'out of order');
      });
      await web.resize(desired({ c0: { memory: mi(150) } }));
      await web.resize(desired({ c0: { memory: mi(160) } }));
      expect(runtime.calls.filter((method) => method === 'UpdatePodSandboxResources')).toHaveLength(2);
    });

    test('records the previous memory.high at the beginning of a transaction that lowers memory', async () => {
      web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
      runtime.writeFile(`/kubepods/pod1/${containerId(1)}`, 'memory.high', String(199 * MiB));
      const write = vi.spyOn(await runtime.journal, 'write');
      await web.resize(desired({ c0: { memory: mi(90) }, c1: { memory: mi(180) } }));
      expect(web.limits()).toEqual([90 * MiB, 180 * MiB]);
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
      web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
      const { steps, after } = await web.resize(desired({ c0: { memory: mi(150) } }), { dryRun: true });
      expect(steps).toHaveLength(2);
      expect(after).toMatchObject({ memory: 350 * MiB, containers: [{ memory: 150 * MiB }, { memory: 200 * MiB }] });
      expect([runtime.read('memory.max'), ...web.limits()]).toEqual([String(300 * MiB), 100 * MiB, 200 * MiB]);
    });
  });

  describe('the rollback of ResizePod', () => {
    test.each([
      ['memory.max', String(700 * MiB), { c0: { memory: mi(150) }, c1: { memory: mi(250) } }],
      ['cpu.max', '70000 100000', { c0: { cpu: cpu(20_000) }, c1: { cpu: cpu(20_000) } }],
    ])(
      'a rollback keeps a %s of the pod that another process has written in the meantime',
      async (file, value, containers) => {
        web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
        runtime.wrapResponder('UpdateContainerResources', (request, obey) => {
          if (runtime.decodeUpdate(request).container_id !== containerId(1)) return obey(request);
          // Simulates kubelet up to 1.35, which writes the pod's cgroup before any call.
          runtime.writeFile('/kubepods/pod1', file, value);
          throw new RuntimeFailure(status.INTERNAL, 'no');
        });
        await expect(web.resize(desired(containers))).rejects.toMatchObject({
          details: expect.stringContaining('no') as string,
        });
        expect(runtime.read(file)).toBe(value);
        expect(web.limits()).toEqual([100 * MiB, 200 * MiB]);
        expect(runtime.warnings).toContainEqual({
          pod: SANDBOX,
          step: expect.stringContaining(`pod ${file}`) as string,
        });
      },
    );

    test('KEP-1287: the first container and the pod are rolled back when the runtime rejects the update of the second container', async () => {
      web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
      runtime.applyUpdates((id) => id === containerId(1));
      await expect(web.resize(desired({ c0: { memory: mi(150) }, c1: { memory: mi(250) } }))).rejects.toMatchObject({
        code: 5,
      });
      expect([runtime.read('memory.max'), ...web.limits()]).toEqual([String(300 * MiB), 100 * MiB, 200 * MiB]);
    });

    test('a rollback restores the pod limit when the runtime acknowledges an update without applying it', async () => {
      web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
      runtime.on('UpdateContainerResources', () => Buffer.alloc(0));
      await expect(web.resize(desired({ c0: { memory: mi(150) } }))).rejects.toMatchObject({
        reason: 'CGROUP_WRITE_FAILED',
        context: { asked: String(150 * MiB), found: String(100 * MiB) },
      });
      expect(runtime.read('memory.max')).toBe(String(300 * MiB));
    });

    test('KEP-1287: the pod limit stays raised for a container whose rollback fails, until the next request recovers it', async () => {
      web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
      let calls = 0;
      runtime.wrapResponder('UpdateContainerResources', (request, obey) => {
        calls += 1;
        if (calls > 1) throw new RuntimeFailure(status.UNAVAILABLE, 'gone');
        return obey(request);
      });
      const both = { memory: mi(250), cpu: cpu(30_000) };
      await expect(web.resize(desired({ c0: both, c1: both }))).rejects.toMatchObject({ reason: 'UNDO_FAILED' });
      const found = () => [runtime.read('memory.max'), runtime.read('cpu.max'), ...web.limits()];
      expect(found()).toEqual([String(500 * MiB), '60000 100000', 250 * MiB, 200 * MiB]);
      const undos = runtime.counted.families.find(
        ({ description }) => description.name === 'cri_resize_shim_undos_total',
      );
      expect([...(undos?.series() ?? [])]).toContainEqual(expect.objectContaining({ labels: ['failed'], value: 1 }));
      runtime.applyUpdates();
      await web.resize(desired({ c1: { memory: mi(210) } }));
      expect(found()).toEqual([String(310 * MiB), '20000 100000', 100 * MiB, 210 * MiB]);
    });

    test('recovery restores all containers after an update that was applied but exceeded its deadline', async () => {
      web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
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
      runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
      const resize = web.resize(desired({ c0: changed, c1: changed }));
      // The update may still arrive at this time.
      await expect(resize).rejects.toMatchObject({ reason: 'UNDO_FAILED', message: /context deadline exceeded/ });
      // A recovery waits a limited time for the runtime's answer. No time passes here.
      vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
      expect(await recover(runtime.node)).toBe(true);
      expect(web.limits()).toEqual([100 * MiB, 200 * MiB]);
      expect([runtime.read('memory.max'), runtime.read('cpu.max')]).toEqual([String(300 * MiB), '20000 100000']);
    });

    test('a rollback restores a pod limit that was below the sum of its containers', async () => {
      web.make(String(250 * MiB), [100 * MiB, 200 * MiB]);
      runtime.applyUpdates(() => true);
      const target = desired({ c0: { memory: mi(150) } }, { pod: { memory: mi(280), cpu: cpu(15_000) } });
      await expect(web.resize(target)).rejects.toMatchObject({ code: 5 });
      expect([runtime.read('memory.max'), runtime.read('cpu.max')]).toEqual([String(250 * MiB), '20000 100000']);
    });

    test('ResizePod changes nothing when its deadline has passed before the first step', async () => {
      web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
      const late = web.resize(desired({ c0: { memory: mi(150) } }), { deadline: performance.now() - 1 });
      await expect(late).rejects.toMatchObject({ code: 4, reason: 'DEADLINE' });
      expect(runtime.read('memory.max')).toBe(String(300 * MiB));
    });

    test.each([-86_400_000, 86_400_000])(
      'ResizePod completes although the system time changes by %i ms during its steps',
      async (ms) => {
        web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
        vi.useFakeTimers({ toFake: ['Date'] });
        const onStep = (): void => void vi.setSystemTime(Date.now() + ms);
        try {
          await web.resize(desired({ c0: { memory: mi(150) }, c1: { memory: mi(250) } }), { onStep });
        } finally {
          vi.useRealTimers();
        }
        expect([runtime.read('memory.max'), ...web.limits()]).toEqual([String(400 * MiB), 150 * MiB, 250 * MiB]);
      },
    );

    test('a rollback restores all values when the deadline passes between two steps', async () => {
      web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
      const deadline = performance.now() + 60_000;
      const real = performance.now.bind(performance);
      const late = web.resize(desired({ c0: { memory: mi(150) }, c1: { memory: mi(250) } }), {
        deadline,
        onStep: () => (performance.now = () => deadline),
      });
      await late.then(
        () => expect.unreachable(),
        (error: unknown) => expect(error).toMatchObject({ reason: 'DEADLINE' }),
      );
      performance.now = real;
      expect([runtime.read('memory.max'), ...web.limits()]).toEqual([String(300 * MiB), 100 * MiB, 200 * MiB]);
    });
  });

  test('KEP-1287: on a node with cgroup v1 ResizePod is rejected, and UpdateContainerResources is forwarded', async () => {
    web.make(String(300 * MiB), [100 * MiB]);
    const root = mkdtempSync(join(tmpdir(), 'cgroup-v1-'));
    for (const controller of ['memory', 'cpu,cpuacct'])
      mkdirSync(join(root, controller, 'kubepods/pod1', containerId(0)), { recursive: true });
    const context = { ...runtime.node, tree: new CgroupTree(root) };
    try {
      const options = { dryRun: false, deadline: performance.now() + 60_000 };
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
    await expect(web.resize(desired({}))).rejects.toMatchObject({ code: 5, reason: 'UNKNOWN_POD' });
  });

  test('KEP-1287: a resize of an ended container is stored by the runtime and changes no cgroup', async () => {
    web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
    const ended = 'e'.repeat(64);
    runtime.node.registry.learnContainer({ containerId: ended, sandboxId: SANDBOX, name: 'init' });
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
    const { steps } = await web.resize(desired({ init: { memory: mi(80) } }));
    expect(steps).toHaveLength(1);
    expect(stored).toEqual([BigInt(80 * MiB)]);
    expect(runtime.read('memory.max')).toBe(String(300 * MiB));
  });

  test('a ResizePod waits for an earlier request of its pod until its deadline, and changes nothing then', async () => {
    web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
    const { lock } = runtime.node;
    const key = lockKeyOf((await runtime.node.registry.pod(SANDBOX))!);
    const ended = Promise.withResolvers<undefined>();
    const earlier = lock.run(key, () => ended.promise);
    const late = web.resize(desired({ c0: { memory: mi(150) } }), { deadline: performance.now() + 100 });
    await expect(late).rejects.toMatchObject({ code: status.DEADLINE_EXCEEDED, reason: 'DEADLINE' });
    expect(lock.waiting(key)).toBe(0);
    ended.resolve(undefined);
    await earlier;
    expect([runtime.read('memory.max'), ...web.limits()]).toEqual([String(300 * MiB), 100 * MiB, 200 * MiB]);
  });
});

describe('all fields of LinuxContainerResources', () => {
  const text = (count: number): string => String(count * MiB);
  const ANSWER = Buffer.from('the answer of the runtime');
  const CGROUP = `/kubepods/pod1/${containerId(0)}`;

  /** Files that a container has in addition to those of makePod. */
  const files = { 'memory.low': '0', 'cpuset.cpus': '', 'cpuset.cpus.effective': '0-3', 'hugetlb.2MB.max': 'max' };
  const all = [
    'memory.max',
    'memory.swap.max',
    'memory.high',
    'memory.low',
    'cpuset.cpus',
    'hugetlb.2MB.max',
    'cpu.max',
  ];
  const read = (): string[] => all.map((file) => runtime.read(`${containerId(0)}/${file}`));
  let store: FakeStoringRuntime;

  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    runtime.makePod(text(300), [100 * MiB, 200 * MiB]);
    runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
    store = new FakeStoringRuntime(runtime);
    const limits = { cpu_quota: 10_000n, cpu_period: 100_000n };
    store.create(0, { ...limits, memory_limit_in_bytes: criMi(100), memory_swap_limit_in_bytes: criMi(164) }, files);
    store.create(1, { ...limits, memory_limit_in_bytes: criMi(200) });
  });

  afterEach(() => runtime.close());

  const resize = (containers: object) =>
    resizePod(
      runtime.node,
      SANDBOX,
      { pod: {}, containers: new Map(Object.entries(containers)), volumes: new Map() },
      { dryRun: false, deadline: performance.now() + 60_000 },
    );

  type Linux = Parameters<typeof containerUpdate>[1];
  const update = (linux: Linux, forward = () => apply(linux)) =>
    updateContainer(runtime.node, containerUpdate(containerId(0), linux), forward);
  const apply = (linux: Linux): Promise<Buffer> => {
    store.update(containerId(0), containerUpdate(containerId(0), linux).linux);
    return Promise.resolve(ANSWER);
  };

  /** Everything that a caller may set at once. */
  const everything: Linux = {
    memory_limit_in_bytes: criMi(200),
    memory_swap_limit_in_bytes: criMi(300),
    cpu_quota: 20_000n,
    cpu_period: 100_000n,
    cpuset_cpus: '0-1',
    hugepage_limits: [{ page_size: '2MB', limit: criMi(4) }],
    unified: { 'memory.high': text(180), 'memory.low': '32M' },
    oom_score_adj: 500n,
  };

  describe('A8: swap', () => {
    test('KEP-1287: a ResizePod keeps the swap limit of a container', async () => {
      await resize({ c0: { memory: bytes(150 * MiB) } });
      expect(read().slice(0, 2)).toEqual([text(150), text(64)]);
      await resize({ c0: { memory: bytes(80 * MiB) } });
      expect(read().slice(0, 2)).toEqual([text(80), text(64)]);
    });

    test('a ResizePod that removes the memory limit keeps the swap limit, and so does the next one that sets a memory limit', async () => {
      await resize({ c0: { memory: 'max' } });
      expect(read().slice(0, 2)).toEqual(['max', text(64)]);
      await resize({ c0: { memory: bytes(150 * MiB) } });
      expect(read().slice(0, 2)).toEqual([text(150), text(64)]);
    });

    test('a ResizePod gives no swap to a container without swap, and keeps unlimited swap', async () => {
      store.create(0, { memory_limit_in_bytes: criMi(100), memory_swap_limit_in_bytes: -1n });
      await resize({ c0: { memory: bytes(150 * MiB) }, c1: { memory: bytes(250 * MiB) } });
      expect(read()[1]).toBe('max');
      expect(runtime.read(`${containerId(1)}/memory.swap.max`)).toBe('0');
    });

    test('a ResizePod keeps a swap limit that kubelet has set by a key of unified', async () => {
      store.create(0, { memory_limit_in_bytes: criMi(100), unified: { 'memory.swap.max': text(32) } });
      await resize({ c0: { memory: bytes(150 * MiB) } });
      expect(read().slice(0, 2)).toEqual([text(150), text(32)]);
      expect(store.asked.at(-1)?.memory_swap_limit_in_bytes).toBe(0n);
    });

    test('KEP-1287: a swap limit that a failed update has revoked is restored', async () => {
      const failing = update({ memory_limit_in_bytes: criMi(150) }, async () => {
        await apply({ memory_limit_in_bytes: criMi(150) });
        throw new Error('deadline exceeded');
      });
      await expect(failing).rejects.toThrow('deadline exceeded');
      expect(read().slice(0, 2)).toEqual([text(100), text(64)]);
    });

    test('a ResizePod keeps the stored swap limit of a container that does not run', async () => {
      const asked: bigint[] = [];
      runtime.describeContainer(containerId(0), {
        metadata: { name: 'c0' },
        state: 2,
        resources: { linux: { memory_limit_in_bytes: criMi(100), memory_swap_limit_in_bytes: criMi(164) } },
      });
      runtime.removeCgroup(CGROUP);
      runtime.on('UpdateContainerResources', (request) => {
        const { linux } = runtime.decodeUpdate(request);
        asked.push(linux!.memory_limit_in_bytes, linux!.memory_swap_limit_in_bytes);
        return Buffer.alloc(0);
      });
      await resize({ c0: { memory: bytes(150 * MiB) } });
      expect(asked).toEqual([criMi(150), criMi(214)]);
    });
  });

  describe('A8: every field of an update', () => {
    test('KEP-1287: every field that the runtime has written to the cgroup of a container stays, and the pod limit follows', async () => {
      expect(await update(everything)).toBe(ANSWER);
      expect(read()).toEqual([text(200), text(100), text(180), '32M', '0-1', text(4), '20000 100000']);
      expect(runtime.read('memory.max')).toBe(text(400));
      expect(store.asked).toEqual([]);
    });

    test('KEP-1287: every field of an update that fails midway is rolled back', async () => {
      const before = read();
      const failing = update(everything, async () => {
        await apply(everything);
        throw new Error('deadline exceeded');
      });
      await expect(failing).rejects.toThrow('deadline exceeded');
      // A container without a cpuset gets that of the pod.
      expect(read()).toEqual(before.map((value) => (value === '' ? '0-3' : value)));
      expect(runtime.read('memory.max')).toBe(text(300));
    });

    test.each([
      ['memory.high', 'max'],
      ['memory.low', '0'],
      ['cpuset.cpus', '0-3'],
    ])(
      'KEP-1287: an update that leaves the old value of %s in the kernel fails, and its other fields are rolled back',
      async (file, old) => {
        const failing = update(everything, async () => {
          await apply(everything);
          runtime.writeFile(CGROUP, file, old);
          return ANSWER;
        });
        await expect(failing).rejects.toMatchObject({ reason: 'CGROUP_WRITE_FAILED', context: { found: old } });
        expect(read().slice(0, 3)).toEqual([text(100), text(64), 'max']);
        expect(runtime.read('memory.max')).toBe(text(300));
      },
    );

    test('warns about hugepage limits that runc ignores, and swap that containerd ignores without its controller', async () => {
      await update(everything, async () => {
        await apply(everything);
        runtime.writeFile(CGROUP, 'hugetlb.2MB.max', 'max');
        runtime.writeFile(CGROUP, 'memory.swap.max', text(64));
        return ANSWER;
      });
      expect(runtime.warnings).toContainEqual(expect.objectContaining({ files: 'memory.swap.max, hugetlb.2MB.max' }));
    });

    test('KEP-1287: an update without limits that fails midway is rolled back, although it does not wait for the pod', async () => {
      const linux: Linux = { cpuset_cpus: '0-1', unified: { 'memory.high': text(90) } };
      const failing = update(linux, async () => {
        await apply(linux);
        throw new Error('no such CPU');
      });
      await expect(failing).rejects.toThrow('no such CPU');
      expect(read().slice(2, 5)).toEqual(['max', '0', '0-3']);
    });

    test('KEP-1287: an update of one field keeps the memory.high that another program has written to the kernel', async () => {
      await update({ unified: { 'memory.high': text(46) } });
      runtime.writeFile(CGROUP, 'memory.high', text(90));
      await update({ cpuset_cpus: '0-1' });
      expect(read()[2]).toBe(text(90));
      runtime.writeFile(CGROUP, 'memory.high', text(80));
      await resize({ c0: { memory: bytes(150 * MiB) } });
      expect(read()[2]).toBe(text(80));
    });
  });

  describe('A7, A8: an interrupted update of every field', () => {
    /** Kills the shim after the runtime has applied the update, before the pod limit is lowered. */
    const cutOff = async (): Promise<void> => {
      const before = (file: string): string => runtime.read(`${containerId(0)}/${file}`);
      const pod = (await runtime.node.registry.pod(SANDBOX))!;
      const steps: Step[] = [
        { kind: 'pod-memory', from: bytes(300 * MiB), to: bytes(400 * MiB) },
        {
          kind: 'container',
          id: containerId(0),
          memory: { from: bytes(100 * MiB), to: bytes(200 * MiB) },
          swap: { from: bytes(64 * MiB), to: bytes(100 * MiB) },
          settings: {
            'memory.high': { from: before('memory.high'), to: text(180) },
            'memory.low': { from: '0', to: '32M' },
            'cpuset.cpus': { from: '0-3', to: '0-1' },
            'hugetlb.2MB.max': { from: 'max', to: text(4) },
          },
        },
        {
          kind: 'pod-cpu',
          from: runtime.node.tree.readLimitsNow('/kubepods/pod1').cpuMax!,
          to: { quota: 1 as never, period: 100_000 as never },
        },
      ];
      await runtime.node.journal.begin(pod, steps, { volumes: new Map() });
    };
    const linux: Linux = { ...everything, cpu_quota: 0n, cpu_period: 0n };

    test('KEP-1287: recovery rolls back every field of an interrupted update', async () => {
      await cutOff();
      await apply(linux);
      runtime.writeFile('/kubepods/pod1', 'memory.max', text(400));
      await recover(runtime.node);
      expect(read()).toEqual([text(100), text(64), 'max', '0', '0-3', 'max', '10000 100000']);
      expect(runtime.read('memory.max')).toBe(text(300));
      expect(store.stored(0).unified).toEqual({ 'memory.high': 'max', 'memory.low': '0' });
    });

    test('KEP-1287: recovery keeps the field that another program has written since the interrupted update', async () => {
      await cutOff();
      await apply(linux);
      runtime.writeFile(CGROUP, 'memory.low', text(50));
      store.update(containerId(0), containerUpdate(containerId(0), { unified: { 'memory.low': text(50) } }).linux);
      await recover(runtime.node);
      expect(read()).toEqual([text(100), text(64), 'max', text(50), '0-3', 'max', '10000 100000']);
    });

    test('an interrupted update that has revoked swap counts as done, because its request has no swap limit', async () => {
      const pod = (await runtime.node.registry.pod(SANDBOX))!;
      const step: Step = {
        kind: 'container',
        id: containerId(0),
        memory: { from: bytes(100 * MiB), to: bytes(200 * MiB) },
        swap: { from: bytes(64 * MiB), to: bytes(64 * MiB) },
      };
      const podStep: Step = { kind: 'pod-memory', from: bytes(300 * MiB), to: bytes(400 * MiB) };
      await runtime.node.journal.begin(pod, [podStep, step], { volumes: new Map() });
      await apply({ memory_limit_in_bytes: criMi(200) });
      await recover(runtime.node);
      // The pod limit was not raised, so it is rolled back together with the swap limit.
      expect(read().slice(0, 2)).toEqual([text(100), text(64)]);
      await runtime.node.journal.begin(pod, [podStep, step], { volumes: new Map() });
      await apply({ memory_limit_in_bytes: criMi(200) });
      runtime.writeFile('/kubepods/pod1', 'memory.max', text(400));
      await recover(runtime.node);
      expect(read().slice(0, 2)).toEqual([text(200), '0']);
    });

    test('KEP-1287: recovery changes nothing if the update was interrupted before the call to the runtime', async () => {
      const before = read();
      await cutOff();
      await recover(runtime.node);
      expect(read()).toEqual(before);
      expect(store.asked).toEqual([]);
    });
  });
});
