import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { bytes, cpuShares, microseconds } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import { resizePod } from '../../../src/sandbox/operations/resize-pod.ts';
import { updateContainer } from '../../../src/sandbox/operations/update-container.ts';
import { updatePod } from '../../../src/sandbox/operations/update-pod.ts';
import type { StepRecord } from '../../../src/sandbox/plan/step.ts';
import {
  containerId,
  containerUpdate,
  FakeRuntime,
  podConfig,
  RuntimeFailure,
  SANDBOX,
} from '../../support/fake-runtime.ts';
import { FakeStoringRuntime } from '../../support/fake-storing-runtime.ts';
import { criMi, mi } from '../../support/quantities/mebibytes.ts';
import { desired } from '../../support/resize/resized-pod.ts';

const ANSWER = Buffer.from('the answer of the runtime');

let runtime: FakeRuntime;

afterEach(() => runtime.close());

describe('verification in the kernel', () => {
  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    runtime.applyUpdates();
  });

  const cgroup = `/kubepods/pod1/${containerId(0)}`;
  /** The runtime reports success, and leaves this memory limit and quota. */
  const update = (linux: Parameters<typeof containerUpdate>[1], written: { memory?: number; quota?: number }) =>
    updateContainer(runtime.node, containerUpdate(containerId(0), linux), () => {
      if (written.memory !== undefined) runtime.writeFile(cgroup, 'memory.max', String(written.memory * MiB));
      if (written.quota !== undefined) runtime.writeFile(cgroup, 'cpu.max', `${written.quota} 100000`);
      return Promise.resolve(ANSWER);
    });
  const memory = (mebibytes: number) => ({ memory_limit_in_bytes: BigInt(mebibytes * MiB) });
  const found = (): number[] => [Number(runtime.read('memory.max')) / MiB, runtime.limitOf(0) / MiB];

  describe("A13: verification of the runtime's own update", () => {
    test('KEP-1287: a decrease that leaves the old limit in the kernel fails the call, and the pod limit stays', async () => {
      await expect(update(memory(50), {})).rejects.toMatchObject({
        reason: 'CGROUP_WRITE_FAILED',
        context: { container: containerId(0), asked: String(50 * MiB), found: String(100 * MiB) },
      });
      expect(found()).toEqual([300, 100]);
    });

    test('KEP-1287: an increase that leaves the old limit in the kernel fails the call, and the pod limit is rolled back', async () => {
      await expect(update(memory(150), {})).rejects.toMatchObject({ reason: 'CGROUP_WRITE_FAILED' });
      expect(found()).toEqual([300, 100]);
    });

    test('KEP-1287: an update is rolled back if only one of its two limits is in the kernel', async () => {
      const both = { ...memory(50), cpu_quota: 5000n, cpu_period: 100_000n };
      await expect(update(both, { memory: 50 })).rejects.toMatchObject({
        reason: 'CGROUP_WRITE_FAILED',
        context: { asked: '5000', found: '10000' },
      });
      expect(found()).toEqual([300, 100]);
      expect(runtime.read('cpu.max')).toBe('20000 100000');
    });

    test.each([
      ['a decrease', 50, 80, 280],
      ['an increase', 180, 130, 330],
      ['a decrease that becomes an increase', 50, 130, 330],
    ])(
      '%s for which a runtime plugin chooses another limit succeeds, and the pod limit follows the chosen one',
      async (_, ...values) => {
        const [asked, chosen, pod] = values;
        expect(await update(memory(asked), { memory: chosen })).toBe(ANSWER);
        expect(found()).toEqual([pod, chosen]);
        expect(runtime.warnings).toContainEqual(
          expect.objectContaining({ container: containerId(0), files: 'memory.max' }),
        );
      },
    );

    test('KEP-1287: the pod limit follows a decrease that is verified in the kernel', async () => {
      expect(await update(memory(50), { memory: 50 })).toBe(ANSWER);
      expect(found()).toEqual([250, 50]);
    });
  });

  describe("A13: the pod's shares after a change by kubelet", () => {
    const stored = [102n, 204n];
    beforeEach(() => {
      for (const index of [0, 1]) {
        const id = containerId(index);
        runtime.node.registry.learnContainer({ containerId: id, sandboxId: SANDBOX, name: `c${index}` });
        runtime.wrapResponder('ContainerStatus', (request, before) => {
          if (decode('ContainerStatusRequest', request).container_id !== id) return before(request);
          return encode('ContainerStatusResponse', {
            status: {
              id,
              metadata: { name: `c${index}` },
              state: 1,
              resources: { linux: { cpu_shares: stored[index]! } },
            },
            info: { info: JSON.stringify({ sandboxID: SANDBOX, pid: 100 + index }) },
          });
        });
      }
    });
    const resize = () => {
      const desired = { pod: {}, containers: new Map([['c0', { shares: cpuShares(51) }]]), volumes: new Map() };
      return resizePod(runtime.node, SANDBOX, desired, { dryRun: false, deadline: performance.now() + 60_000 });
    };

    test('ResizePod recognizes pod shares that kubelet has set to the sum of the requests, although the pod was created with others', async () => {
      // Created with 1024 shares. kubelet has written the weight of 306 since, and the shim has not seen a call.
      runtime.writeFile('/kubepods/pod1', 'cpu.weight', '12');
      await resize();
      expect(runtime.read('cpu.weight')).toBe('10');
    });

    test('ResizePod keeps a pod weight that is not derived from the sum of the requests', async () => {
      runtime.writeFile('/kubepods/pod1', 'cpu.weight', '39');
      await resize();
      expect(runtime.read('cpu.weight')).toBe('39');
    });

    test('learns the pod shares from an UpdatePodSandboxResources that repeats the value written by kubelet', async () => {
      const name = 'UpdatePodSandboxResourcesRequest';
      runtime.writeFile('/kubepods/pod1', 'cpu.weight', '1');
      const request = decode(name, encode(name, { pod_sandbox_id: SANDBOX, resources: { cpu_shares: 2n } }));
      await updatePod(runtime.node, request, () => Promise.resolve(ANSWER));
      expect((await runtime.node.registry.pod(SANDBOX))?.cpuShares).toBe(2);
      expect(runtime.read('cpu.weight')).toBe('1');
    });
  });
});

describe('A11: a quota that systemd has rounded', () => {
  // systemd stores quotas in whole percents of a CPU, and writes them whenever a property of the unit changes or it
  // reloads.
  const POD = '/kubepods.slice/kubepods-pod1.slice';
  const SCOPE = `${POD}/cri-containerd-${containerId(0)}.scope`;
  /** The quotas that the shim has requested from the runtime. */
  let asked: (bigint | undefined)[];
  let storedMemory: bigint;

  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    runtime.describePod({ config: { ...podConfig, linux: { ...podConfig.linux, cgroup_parent: POD } } });
    runtime.writeCgroup('/kubepods.slice', { 'memory.max': 'max', 'cpu.max': 'max 100000', 'cpu.weight': '100' });
    for (const cgroup of [POD, SCOPE])
      runtime.writeCgroup(cgroup, { 'memory.max': String(100 * MiB), 'cpu.max': '13000 100000', 'cpu.weight': '39' });
    mkdirSync(join(runtime.procRoot, '100'), { recursive: true });
    writeFileSync(join(runtime.procRoot, '100/cgroup'), `0::${SCOPE}\n`);
    asked = [];
    storedMemory = BigInt(100 * MiB);
    runtime.on('UpdateContainerResources', (request) => {
      const { linux } = runtime.decodeUpdate(request);
      asked.push(linux?.cpu_quota);
      if (linux?.cpu_quota) writeQuota(Number(linux.cpu_quota));
      if (linux?.memory_limit_in_bytes) storedMemory = linux.memory_limit_in_bytes;
      return Buffer.alloc(0);
    });
    stores(12_500);
  });

  const writeQuota = (quota: number): void => runtime.writeFile(SCOPE, 'cpu.max', `${quota} 100000`);
  const quota = (): string => readFileSync(join(runtime.cgroupRoot, SCOPE, 'cpu.max'), 'utf8').trim();

  function stores(cpu_quota: number): void {
    runtime.on('ContainerStatus', () =>
      encode('ContainerStatusResponse', {
        status: {
          id: containerId(0),
          metadata: { name: 'c0' },
          state: 1,
          resources: {
            linux: { cpu_quota: BigInt(cpu_quota), cpu_period: 100_000n, memory_limit_in_bytes: storedMemory },
          },
        },
        info: { info: JSON.stringify({ sandboxID: SANDBOX, pid: 100 }) },
      }),
    );
  }

  const cpuset = (written: number) =>
    updateContainer(runtime.node, containerUpdate(containerId(0), { cpuset_cpus: '0-1' }), () => {
      writeQuota(written);
      return Promise.resolve(ANSWER);
    });

  test('does not request a quota rounded by systemd after a cpuset-only update wrote the exact quota', async () => {
    expect(await cpuset(12_500)).toBe(ANSWER);
    expect([asked, quota()]).toEqual([[], '12500 100000']);
  });

  test('restores a quota that differs from the stored one by more than the rounding of systemd', async () => {
    writeQuota(14_000);
    await cpuset(12_500);
    expect([asked, quota()]).toEqual([[14_000n], '14000 100000']);
  });

  test('a failed update restores the stored quota, not the one that systemd rounded', async () => {
    const linux = { memory_limit_in_bytes: BigInt(200 * MiB), cpu_quota: 20_000n, cpu_period: 100_000n };
    const failing = updateContainer(runtime.node, containerUpdate(containerId(0), linux), () => {
      writeQuota(20_000);
      return Promise.reject(new Error('deadline exceeded'));
    });
    await expect(failing).rejects.toThrow('deadline exceeded');
    expect([asked, quota()]).toEqual([[12_500n], '12500 100000']);
  });

  test('a failed ResizePod restores the stored quota, not the one that systemd rounded', async () => {
    runtime.node.registry.learnContainer({ containerId: containerId(0), sandboxId: SANDBOX, name: 'c0' });
    // Accepts every request, and sets only the CPU limit.
    const cpu = { quota: 20_000, period: 100_000 } as never;
    const desired = { pod: {}, containers: new Map([['c0', { cpu, memory: bytes(200 * MiB) }]]), volumes: new Map() };
    const resize = resizePod(runtime.node, SANDBOX, desired, {
      dryRun: false,
      deadline: performance.now() + 60_000,
    });
    await expect(resize).rejects.toMatchObject({ reason: 'CGROUP_WRITE_FAILED' });
    expect([asked, quota()]).toEqual([[20_000n, 12_500n], '12500 100000']);
  });
});

describe('updates without limits', () => {
  beforeEach(async () => {
    runtime = await FakeRuntime.start();
  });

  const cpuset = (forward: () => Promise<Buffer>) =>
    updateContainer(runtime.node, containerUpdate(containerId(0), { cpuset_cpus: '0-1' }), forward);

  describe('kubernetes 138732: cpuset updates during a resize', () => {
    test('KEP-1287: a cpuset-only update does not wait for a resize of its pod', async () => {
      runtime.makePod(String(100 * MiB), [100 * MiB]);
      let end = (): void => undefined;
      const resize = runtime.node.lock.run(
        podConfig.metadata.uid,
        () => new Promise<void>((resolve) => (end = resolve)),
      );
      expect(await cpuset(() => Promise.resolve(ANSWER))).toBe(ANSWER);
      end();
      await resize;
    });

    test('a cpuset update waits for an update of the same container that the runtime is applying', async () => {
      runtime.makePod(String(100 * MiB), [100 * MiB]);
      runtime.applyUpdates();
      const events: string[] = [];
      const memory = { memory_limit_in_bytes: BigInt(150 * MiB) };
      let called = (): void => undefined;
      const atRuntime = new Promise<void>((resolve) => (called = resolve));
      const resize = updateContainer(runtime.node, containerUpdate(containerId(0), memory), async () => {
        events.push('resize begins');
        called();
        for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
        runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'memory.max', String(150 * MiB));
        events.push('resize ends');
        return ANSWER;
      });
      await atRuntime;
      await cpuset(() => {
        events.push('cpuset');
        return Promise.resolve(ANSWER);
      });
      await resize;
      expect(events).toEqual(['resize begins', 'resize ends', 'cpuset']);
      expect(runtime.limitOf(0)).toBe(150 * MiB);
    });

    test.each([
      ['a cpuset', { cpuset_cpus: '0-1' }],
      ['shares', { cpu_shares: 512n }],
    ])(
      '%s: an update is not forwarded when another update of the container takes longer than the deadline',
      async (_what, linux) => {
        runtime.makePod(String(100 * MiB), [100 * MiB]);
        const ended = Promise.withResolvers<undefined>();
        const other = runtime.node.calls.run(containerId(0), () => ended.promise);
        let isForwarded = false;
        const forward = (): Promise<Buffer> => {
          isForwarded = true;
          return Promise.resolve(ANSWER);
        };
        const request = containerUpdate(containerId(0), linux);
        const update = updateContainer(runtime.node, request, forward, { deadline: performance.now() + 200 });
        await expect(update).rejects.toMatchObject({ code: status.DEADLINE_EXCEEDED, reason: 'DEADLINE' });
        expect(runtime.node.lock.isHeld(podConfig.metadata.uid)).toBe(false);
        ended.resolve(undefined);
        await other;
        await runtime.node.calls.run(containerId(0), () => Promise.resolve());
        expect(isForwarded).toBe(false);
      },
    );

    test('KEP-1287: a cpuset-only update that writes old stored limits has no effect, because the kernel values are restored', async () => {
      runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
      runtime.applyUpdates();
      const stale = () => {
        runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'memory.max', String(30 * MiB));
        runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'cpu.max', '5000 100000');
        return Promise.resolve(ANSWER);
      };
      expect(await cpuset(stale)).toBe(ANSWER);
      expect(runtime.limitOf(0)).toBe(100 * MiB);
      expect(runtime.read(`${containerId(0)}/cpu.max`)).toBe('10000 100000');
      expect(runtime.warnings).toMatchObject([{ container: containerId(0), found: `${30 * MiB}, 5000 100000` }]);
    });
  });

  test('a cpuset update is not forwarded to a runtime that does not serve calls yet: it would write stored limits', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    await runtime.node.registry.pod(SANDBOX);
    runtime.node.registry.learnContainer({ containerId: containerId(0), sandboxId: SANDBOX, name: 'c0' });
    runtime.on('ContainerStatus', () => {
      throw new RuntimeFailure(status.UNKNOWN, 'server is not initialized yet');
    });
    let isForwarded = false;
    const update = cpuset(() => {
      isForwarded = true;
      return Promise.resolve(ANSWER);
    });
    await expect(update).rejects.toThrow('server is not initialized yet');
    expect([isForwarded, runtime.failOpens]).toEqual([false, []]);
  });

  describe('updates of CPU shares only', () => {
    beforeEach(() => {
      runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
      [0, 1].forEach((index) =>
        runtime.node.registry.learnContainer({
          containerId: containerId(index),
          sandboxId: SANDBOX,
          name: `c${index}`,
        }),
      );
    });

    const shares = (forward: () => Promise<Buffer>) =>
      updateContainer(runtime.node, containerUpdate(containerId(1), { cpu_shares: 2048n }), forward);

    test('an update of CPU shares supersedes an earlier request for these shares', async () => {
      const { newest } = runtime.node;
      const earlier = newest.arrival();
      await shares(() => Promise.resolve(ANSWER));
      const writer = newest.newerWriter(SANDBOX, 'container c1, requests.cpu', earlier);
      expect(writer?.text).toBe('an update of container c1');
      expect(newest.newerWriter(SANDBOX, 'container c1, limits.cpu', earlier)).toBeUndefined();
    });

    test('an update of CPU shares is applied after a ResizePod in progress that arrived before and sets them', async () => {
      const applied: string[] = [];
      let newer: Promise<Buffer> | undefined;
      runtime.applyUpdates();
      runtime.wrapResponder('UpdateContainerResources', (request, obey) => {
        const { container_id, linux } = runtime.decodeUpdate(request);
        if (container_id === containerId(1)) applied.push(`resize: ${linux?.cpu_shares}`);
        newer ??= shares(() => {
          applied.push('update: 2048');
          return Promise.resolve(ANSWER);
        });
        return obey(request);
      });
      const target = desired({ c0: { memory: mi(50) }, c1: { shares: cpuShares(51) } });
      await resizePod(runtime.node, SANDBOX, target, { dryRun: false, deadline: Infinity });
      expect(await newer).toBe(ANSWER);
      expect(applied).toEqual(['resize: 51', 'update: 2048']);
    });
  });
});

describe('values of a plugin', () => {
  const text = (count: number): string => String(count * MiB);
  const CGROUP = `/kubepods/pod1/${containerId(0)}`;
  let store: FakeStoringRuntime;

  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    runtime.makePod(text(300), [100 * MiB, 200 * MiB]);
    runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
    store = new FakeStoringRuntime(runtime);
    const limits = { cpu_quota: 10_000n, cpu_period: 100_000n };
    const files = { 'cpuset.cpus': '', 'cpuset.cpus.effective': '0-3' };
    store.create(0, { ...limits, memory_limit_in_bytes: criMi(100) }, files);
    store.create(1, { ...limits, memory_limit_in_bytes: criMi(200) });
  });

  type Linux = Parameters<typeof containerUpdate>[1];
  const apply = (linux: Linux): Promise<Buffer> => {
    store.update(containerId(0), containerUpdate(containerId(0), linux).linux);
    return Promise.resolve(ANSWER);
  };
  const update = (linux: Linux, forward = () => apply(linux)) =>
    updateContainer(runtime.node, containerUpdate(containerId(0), linux), forward);
  const resize = (containers: object, pod: object = {}, onStep: (record: StepRecord) => void = () => undefined) =>
    resizePod(
      runtime.node,
      SANDBOX,
      { pod, containers: new Map(Object.entries(containers)), volumes: new Map() },
      { dryRun: false, deadline: performance.now() + 60_000, onStep },
    );

  /** The limits of the pod and of both containers, in MiB. */
  const found = (): number[] =>
    [Number(runtime.read('memory.max')), ...[0, 1].map((at) => runtime.limitOf(at))].map((size) => size / MiB);
  const warnings = (): unknown[] => runtime.warnings.map(({ files }) => files).filter((files) => files !== undefined);
  /** The plugin answers each update of container 0 with these values. */
  function keeps(values: object): void {
    store.plugin = (id, linux) => (id === containerId(0) ? { ...linux, ...values } : linux);
  }

  describe('runtime plugin that keeps the current value of a container (koordinator 3129, kubernetes 130598)', () => {
    test.each([
      ['memory.max', { memory_limit_in_bytes: criMi(120) }, { memory_limit_in_bytes: criMi(100) }],
      ['cpu.max', { cpu_quota: 20_000n, cpu_period: 100_000n }, { cpu_quota: 10_000n }],
      ['cpuset.cpus', { cpuset_cpus: '0-1' }, { cpuset_cpus: '0-3' }],
      ['memory.high', { unified: { 'memory.high': text(90) } }, { unified: { 'memory.high': text(80) } }],
    ])(
      '%s kept by a plugin: UpdateContainerResources succeeds with a warning, and the pod does not change',
      async (file, asked, kept) => {
        await apply(kept);
        keeps(kept);
        expect(await update(asked)).toBe(ANSWER);
        expect(found()).toEqual([300, 100, 200]);
        expect(warnings()).toContainEqual(expect.stringContaining(file));
      },
    );

    test.each([150, 60])(
      'ResizePod to %i MiB succeeds although a plugin keeps the limit, and the pod limit follows the kernel',
      async (wanted) => {
        keeps({ memory_limit_in_bytes: criMi(100) });
        const reported: StepRecord[] = [];
        const { steps } = await resize({ c0: { memory: mi(wanted) } }, {}, (record) => reported.push(record));
        expect(found()).toEqual([300, 100, 200]);
        // Excludes the steps that correct the pod limit.
        expect(reported).toEqual(steps);
      },
    );

    test('ResizePod sets the requested pod limit as far as the containers fit when a plugin keeps a limit', async () => {
      keeps({ memory_limit_in_bytes: criMi(100) });
      await resize({ c0: { memory: mi(150) } }, { memory: mi(400) });
      expect(found()).toEqual([400, 100, 200]);
      await resize({ c0: { memory: mi(50) } }, { memory: mi(250) });
      expect(found()).toEqual([400, 100, 200]);
    });

    test('rejects and rolls back a ResizePod when a plugin keeps memory that another container needs', async () => {
      keeps({ memory_limit_in_bytes: criMi(100) });
      const rejected = resize({ c0: { memory: mi(50) }, c1: { memory: mi(250) } });
      await expect(rejected).rejects.toMatchObject({ code: status.FAILED_PRECONDITION, reason: 'CGROUP_WRITE_FAILED' });
      expect(found()).toEqual([300, 100, 200]);
      expect(runtime.node.journal.unfinished()).toEqual([]);
    });

    test('does not reject a ResizePod for kept memory if the pod limit was below the sum before', async () => {
      runtime.writeFile('/kubepods/pod1', 'memory.max', text(250));
      keeps({ memory_limit_in_bytes: criMi(100) });
      await resize({ c0: { memory: mi(120) }, c1: { memory: mi(220) } });
      expect(found()).toEqual([250, 100, 220]);
    });

    test('ResizePod of a CPU limit that a plugin keeps succeeds, and the pod limit follows the kernel', async () => {
      keeps({ cpu_quota: 10_000n });
      await resize({ c0: { cpu: { quota: microseconds(30_000), period: microseconds(100_000) } } });
      expect([runtime.read('cpu.max'), runtime.read(`${containerId(0)}/cpu.max`)]).toEqual([
        '20000 100000',
        '10000 100000',
      ]);
    });
  });

  test('a rollback that a plugin does not follow is not reported as UNDO_FAILED', async () => {
    store.plugin = (id, linux) => {
      if (id === containerId(1)) throw new RuntimeFailure(status.INTERNAL, 'no');
      // containerd drops the limit on swap if a plugin answers.
      return { ...linux, memory_limit_in_bytes: criMi(150), memory_swap_limit_in_bytes: 0n };
    };
    const rejected = resize({ c0: { memory: mi(150) }, c1: { memory: mi(250) } });
    await expect(rejected).rejects.toThrow(/^13 INTERNAL: Error: no$/);
    expect(found().slice(1)).toEqual([150, 200]);
    expect(runtime.node.journal.unfinished()).toEqual([]);
  });

  test('rejects and rolls back an update that the runtime stores but does not apply', async () => {
    const linux = { memory_limit_in_bytes: criMi(120) };
    const answer = update(linux, async () => {
      await apply(linux);
      runtime.writeFile(CGROUP, 'memory.max', text(100));
      return ANSWER;
    });
    await expect(answer).rejects.toMatchObject({ reason: 'CGROUP_WRITE_FAILED' });
    expect(found()).toEqual([300, 100, 200]);
  });
});
