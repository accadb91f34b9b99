import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Metadata } from '../../../src/core/grpc.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import type { Messages, Partially } from '../../../src/runtime/messages.ts';
import { updatePod } from '../../../src/sandbox/operations/update-pod.ts';
import type { Step } from '../../../src/sandbox/plan/step.ts';
import { recover } from '../../../src/sandbox/transaction/recover.ts';
import { FakeRuntime, podConfig, RuntimeFailure, SANDBOX } from '../../support/fake-runtime.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';
import { criMi } from '../../support/quantities/mebibytes.ts';

const ANSWER = Buffer.from('the answer of the runtime');

let runtime: FakeRuntime;

afterEach(() => runtime.close());

describe('UpdatePodSandboxResources', () => {
  beforeEach(async () => {
    runtime = await FakeRuntime.start();
  });

  const podUpdate = (resources: object, more: object = {}) => {
    const name = 'UpdatePodSandboxResourcesRequest';
    return decode(name, encode(name, { pod_sandbox_id: SANDBOX, resources, ...more }));
  };

  test('restores limits, weight and unified keys when the runtime fails', async () => {
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
    await expect(updatePod(runtime.node, request, forward)).rejects.toThrow('says no');
    // 79 is by the old formula, by which 1024 shares are the pod's weight of 39.
    expect(atCall).toEqual([String(250 * MiB), '50000 100000', '79', '200000000']);
    expect(files.map((file) => runtime.read(file))).toEqual(before);
  });

  test('changes nothing when the deadline of the request passes while it waits for the lock of the pod', async () => {
    runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    const write = vi.spyOn(runtime.node.tree, 'write');
    const ended = Promise.withResolvers<undefined>();
    const holder = runtime.node.lock.run(podConfig.metadata.uid, () => ended.promise);
    const request = podUpdate({ memory_limit_in_bytes: BigInt(400 * MiB) });
    const forward = vi.fn(() => Promise.resolve(ANSWER));
    const late = updatePod(runtime.node, request, forward, { deadline: performance.now() });
    await vi.waitFor(() => expect(runtime.node.lock.waiting(podConfig.metadata.uid)).toBe(1), LONG_WAIT);
    ended.resolve(undefined);
    await holder;
    await expect(late).rejects.toMatchObject({ code: status.DEADLINE_EXCEEDED, reason: 'DEADLINE' });
    expect([write.mock.calls, forward.mock.calls]).toEqual([[], []]);
  });

  test('a request waits for one of an earlier sandbox of the pod that still exists', async () => {
    runtime.makePod(String(300 * MiB), [100 * MiB]);
    const { registry } = runtime.node;
    const pod = (await registry.pod(SANDBOX))!;
    const next = 'b'.repeat(64);
    registry.learnPod({ ...pod, sandboxId: next, metadata: { ...pod.metadata, attempt: 1 } });
    const answer = Promise.withResolvers<Buffer>();
    const called = Promise.withResolvers<undefined>();
    const earlier = updatePod(runtime.node, podUpdate({ memory_limit_in_bytes: BigInt(350 * MiB) }), () => {
      called.resolve(undefined);
      return answer.promise;
    });
    await called.promise;
    const request = podUpdate({ memory_limit_in_bytes: BigInt(400 * MiB) }, { pod_sandbox_id: next });
    const later = updatePod(runtime.node, request, () => Promise.resolve(ANSWER));
    await expect.poll(() => runtime.node.lock.waiting(pod.metadata.uid), LONG_WAIT).toBe(1);
    answer.reject(new Error('the runtime says no'));
    await expect(earlier).rejects.toThrow('says no');
    // If the requests did not run in order, the rollback would find the limit of the later request, and not restore it.
    expect(await later).toEqual(ANSWER);
    expect(runtime.read('memory.max')).toBe(String(400 * MiB));
  });

  test('uses the new formula for cpu.weight when the current weight was computed with it', async () => {
    runtime.makePod(String(300 * MiB), [300 * MiB]);
    runtime.writeCgroup('/kubepods/pod1', { 'memory.max': 'max', 'cpu.max': 'max 100000', 'cpu.weight': '100' });
    await updatePod(runtime.node, podUpdate({ cpu_shares: 2048n }), () => Promise.resolve(ANSWER));
    expect(runtime.read('cpu.weight')).toBe('174');
  });

  test('does not change cpu.weight for shares that kubelet computed from it', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    const weightAfter = async (cpu_shares: bigint, overhead?: bigint): Promise<string> => {
      const more = overhead === undefined ? {} : { overhead: { cpu_shares: overhead } };
      const limits = { cpu_shares, memory_limit_in_bytes: BigInt(200 * MiB) };
      await updatePod(runtime.node, podUpdate(limits, more), () => Promise.resolve(ANSWER));
      return runtime.read('cpu.weight');
    };
    // 1024 shares are weight 39. kubelet reads weight 39 as 998 shares, which would be weight 38.
    expect(await weightAfter(998n)).toBe('39');
    expect(runtime.read('memory.max')).toBe(String(200 * MiB));
    // 896 shares and 102 of overhead are 998.
    expect(await weightAfter(896n, 102n)).toBe('39');
    expect(await weightAfter(997n)).toBe('38');
    // The formula is derived from the shares that were set last.
    expect(await weightAfter(2048n)).toBe('79');
  });

  test('writes the cgroup although the request has a string in field 4, which CRI does not define', async () => {
    runtime.makePod(String(300 * MiB), [300 * MiB]);
    const name = 'UpdatePodSandboxResourcesRequest';
    const message = encode(name, podUpdate({ cpu_quota: 50_000n }));
    const request = decode(name, Buffer.concat([message, Buffer.from([0x22, 3, ...Buffer.from('abc')])]));
    await updatePod(runtime.node, request, () => Promise.resolve(ANSWER));
    expect(runtime.read('cpu.max')).toBe('50000 100000');
  });

  test('rejects a unified key that is a path or not a setting', async () => {
    runtime.makePod(String(300 * MiB), [300 * MiB]);
    for (const key of ['../memory.max', 'cgroup.procs', 'memory.reclaim', '/etc/passwd']) {
      const rejected = updatePod(runtime.node, podUpdate({ unified: { [key]: '1' } }), () => Promise.resolve(ANSWER));
      await expect(rejected).rejects.toMatchObject({ code: 3, reason: 'INVALID_VALUE' });
    }
  });

  test('rejects a unified key without a file in the cgroup, and changes nothing', async () => {
    runtime.makePod(String(300 * MiB), [300 * MiB]);
    const request = podUpdate({ memory_limit_in_bytes: BigInt(400 * MiB), unified: { 'memory.nonsense': '1' } });
    const rejected = updatePod(runtime.node, request, () => Promise.resolve(ANSWER));
    await expect(rejected).rejects.toMatchObject({ code: 3, reason: 'INVALID_VALUE' });
    await expect(rejected).rejects.toThrow('unified["memory.nonsense"]: "1": there is no such file');
    expect(runtime.read('memory.max')).toBe(String(300 * MiB));
  });

  test('restores an empty setting when the runtime fails', async () => {
    runtime.makePod(String(300 * MiB), [300 * MiB]);
    const pod = { 'memory.max': 'max', 'cpu.max': 'max 100000', 'cpu.weight': '39', 'cpuset.cpus': '' };
    runtime.writeCgroup('/kubepods/pod1', pod);
    const request = podUpdate({ unified: { 'cpuset.cpus': '0' } });
    let atCall = '';
    const fail = () => {
      atCall = runtime.read('cpuset.cpus');
      return Promise.reject(new Error('the runtime says no'));
    };
    await expect(updatePod(runtime.node, request, fail)).rejects.toThrow(/^the runtime says no$/);
    expect([atCall, runtime.read('cpuset.cpus')]).toEqual(['0', '']);
  });

  test.each([
    ['memory', { memory_limit_in_bytes: 2n ** 53n - 4096n }, { memory_limit_in_bytes: 8192n }],
    ['a quota', { cpu_quota: 2n ** 44n - 1n }, { cpu_quota: 1000n }],
  ])('rejects %s that is too large together with the overhead', async (_name, resources, overhead) => {
    runtime.makePod(String(300 * MiB), [300 * MiB]);
    const rejected = updatePod(runtime.node, podUpdate(resources, { overhead }), () => Promise.resolve(ANSWER));
    await expect(rejected).rejects.toMatchObject({ code: 3, reason: 'INVALID_VALUE' });
    expect(runtime.read('memory.max')).toBe(String(300 * MiB));
  });

  // kubelet subtracts the overhead from -1, which it reads from a file without a limit.
  test.each([
    ['a CPU limit of -1', { cpu_quota: -1n, cpu_period: 100_000n }, { 'cpu.max': 'max 100000' }],
    ['a memory limit of -1', { memory_limit_in_bytes: -1n }, { 'memory.max': 'max' }],
    ['a CPU limit below 0', { cpu_quota: -25_001n, cpu_period: 100_000n }, { 'cpu.max': 'max 100000' }],
    ['a memory limit below 0', { memory_limit_in_bytes: -125_829_121n }, { 'memory.max': 'max' }],
    ['a CPU limit below the minimum', { cpu_quota: 500n, cpu_period: 100_000n }, { 'cpu.max': '25500 100000' }],
    ['a memory limit below a page', { memory_limit_in_bytes: 1n }, { 'memory.max': String(120 * MiB + 1) }],
  ])('A1: adds the overhead to %s', async (_name, resources, files) => {
    runtime.makePod(String(300 * MiB), [300 * MiB]);
    const overhead = { memory_limit_in_bytes: BigInt(120 * MiB), cpu_quota: 25_000n, cpu_period: 100_000n };
    await updatePod(runtime.node, podUpdate(resources, { overhead }), () => Promise.resolve(ANSWER));
    for (const [file, content] of Object.entries(files)) expect(runtime.read(file)).toBe(content);
  });

  const unimplemented = () =>
    Promise.reject(Object.assign(new Error(), { code: 12, details: 'unknown method', metadata: new Metadata() }));

  test('writes the cgroup and returns success when the runtime lacks UpdatePodSandboxResources', async () => {
    runtime.makePod(String(300 * MiB), [300 * MiB]);
    const answer = await updatePod(runtime.node, podUpdate({ cpu_quota: 50_000n }), unimplemented);
    expect(answer).toEqual(Buffer.alloc(0));
    expect(runtime.read('cpu.max')).toBe('50000 100000');
  });

  test('returns success when containerd 2.2 returns Unknown with "not implemented", and returns any other Unknown error', async () => {
    runtime.makePod(String(300 * MiB), [300 * MiB]);
    const fail = (details: string) => () =>
      Promise.reject(Object.assign(new Error(details), { code: 2, details, metadata: new Metadata() }));
    const request = podUpdate({ cpu_quota: 50_000n });
    expect(await updatePod(runtime.node, request, fail('not implemented yet'))).toEqual(Buffer.alloc(0));
    expect(runtime.read('cpu.max')).toBe('50000 100000');
    const rejected = updatePod(runtime.node, podUpdate({ cpu_quota: 60_000n }), fail('runc has failed'));
    await expect(rejected).rejects.toMatchObject({ code: 2, details: 'runc has failed' });
    expect(runtime.read('cpu.max')).toBe('50000 100000');
  });

  test('returns the error of the pod lookup when the runtime lacks the call and does not describe the pod', async () => {
    runtime.on('PodSandboxStatus', () => {
      throw new Error('no such pod');
    });
    const rejected = updatePod(runtime.node, podUpdate({ cpu_quota: 50_000n }), unimplemented);
    await expect(rejected).rejects.toMatchObject({ code: 5, reason: 'UNKNOWN_POD' });
    runtime.on('PodSandboxStatus');
    const unanswered = updatePod(runtime.node, podUpdate({ cpu_quota: 50_000n }), unimplemented);
    await expect(unanswered).rejects.toMatchObject({ code: 14, details: 'no answer' });
  });

  test('returns the error of a runtime that lacks the call when the pod has no cgroup', async () => {
    runtime.describePod({ config: { ...podConfig, linux: {} } });
    const passed = updatePod(runtime.node, podUpdate({ cpu_quota: 50_000n }), unimplemented);
    await expect(passed).rejects.toMatchObject({ code: 12, details: 'unknown method' });
  });

  test('KEP-1287: UpdatePodSandboxResources is only forwarded for a pod without a cgroup parent', async () => {
    runtime.describePod({ config: { ...podConfig, linux: {} } });
    const answer = updatePod(runtime.node, podUpdate({ cpu_quota: 1000n }), () => Promise.resolve(ANSWER));
    expect(await answer).toBe(ANSWER);
    expect(runtime.failOpens).toEqual([]);
  });

  test('is not forwarded to a runtime that does not serve calls yet, because the pod is unknown', async () => {
    runtime.on('PodSandboxStatus', () => {
      throw new RuntimeFailure(status.UNKNOWN, 'server is not initialized yet');
    });
    const update = updatePod(runtime.node, podUpdate({ cpu_quota: 50_000n }), () => Promise.resolve(ANSWER));
    await expect(update).rejects.toThrow('server is not initialized yet');
    expect(runtime.failOpens).toEqual([]);
  });
});

describe('fields of UpdatePodSandboxResources', () => {
  /** Swap, cpusets and huge page limits of the pod's own cgroup. No test node's kernel has cpusets or huge pages. */

  const text = (count: number): string => String(count * MiB);
  const POD = '/kubepods/pod1';
  const MAX_UINT64 = 2n ** 64n - 1n;

  const AT_FIRST = {
    'memory.max': text(300),
    'memory.swap.max': 'max',
    'cpuset.cpus': '',
    'cpuset.mems': '0',
    'hugetlb.2MB.max': 'max',
    'hugetlb.2MB.rsvd.max': text(64),
    'hugetlb.1GB.max': '0',
  };
  const found = (): Record<string, string> =>
    Object.fromEntries(Object.keys(AT_FIRST).map((file) => [file, runtime.read(file)]));

  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    runtime.makePod(text(300), [100 * MiB, 200 * MiB]);
    runtime.writeCgroup(POD, { ...AT_FIRST, 'cpu.max': '20000 100000', 'cpu.weight': '39' });
    runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
  });

  type Resources = Partially<Messages['LinuxContainerResources']>;
  const update = (
    resources: Resources,
    overhead?: Resources,
    forward = (): Promise<Buffer> => Promise.resolve(ANSWER),
  ) => {
    const name = 'UpdatePodSandboxResourcesRequest';
    const request = { pod_sandbox_id: SANDBOX, resources, ...(overhead && { overhead }) };
    return updatePod(runtime.node, decode(name, encode(name, request)), forward);
  };

  const everything: Resources = {
    memory_limit_in_bytes: criMi(400),
    memory_swap_limit_in_bytes: criMi(500),
    cpuset_cpus: '0-3',
    cpuset_mems: '0-1',
    hugepage_limits: [
      { page_size: '2MB', limit: criMi(4) },
      { page_size: '2MB', limit: criMi(128) },
      { page_size: '1GB', limit: MAX_UINT64 },
    ],
  };
  const WRITTEN = {
    'memory.max': text(400),
    'memory.swap.max': text(100),
    'cpuset.cpus': '0-3',
    'cpuset.mems': '0-1',
    'hugetlb.2MB.max': text(128),
    'hugetlb.2MB.rsvd.max': text(128),
    'hugetlb.1GB.max': 'max',
  };

  describe('A8: every field of UpdatePodSandboxResources', () => {
    test("KEP-1287: all fields are in the pod's cgroup before the runtime is called, and a repeated call writes nothing", async () => {
      let atCall = {};
      const forward = (): Promise<Buffer> => {
        atCall = found();
        return Promise.resolve(ANSWER);
      };
      expect(await update(everything, undefined, forward)).toBe(ANSWER);
      expect(atCall).toEqual(WRITTEN);
      const pod = (await runtime.node.registry.pod(SANDBOX))!;
      runtime.wrapResponder('UpdatePodSandboxResources', () => Buffer.alloc(0));
      // The kernel prints lists sorted and sizes in whole pages.
      runtime.writeFile(POD, 'cpuset.cpus', '0,1-3');
      await update(everything);
      expect(found()).toEqual({ ...WRITTEN, 'cpuset.cpus': '0,1-3' });
      expect(runtime.node.journal.transactionOf(pod)).toBeUndefined();
    });

    test("KEP-1287: all fields of the pod's cgroup are rolled back when the runtime fails", async () => {
      const failing = update(everything, undefined, () => Promise.reject(new Error('the runtime says no')));
      await expect(failing).rejects.toThrow(/^the runtime says no$/);
      expect(found()).toEqual(AT_FIRST);
    });

    test("KEP-1287: recovery rolls back all fields of the pod's cgroup, except those written by another program since", async () => {
      const pod = (await runtime.node.registry.pod(SANDBOX))!;
      const steps: Step[] = [
        { kind: 'pod-memory', from: bytes(300 * MiB), to: bytes(400 * MiB) },
        ...Object.entries(WRITTEN)
          .filter(([key]) => key !== 'memory.max')
          .map(([key, to]): Step => ({ kind: 'pod-unified', key, from: AT_FIRST[key as keyof typeof AT_FIRST], to })),
        { kind: 'pod-unified', key: 'memory.high', from: 'max', to: text(200) },
      ];
      await runtime.node.journal.begin(pod, steps, { volumes: new Map() });
      for (const [file, content] of Object.entries(WRITTEN)) runtime.writeFile(POD, file, content);
      runtime.writeFile(POD, 'cpuset.mems', '1');
      await recover(runtime.node);
      expect(found()).toEqual({ ...AT_FIRST, 'cpuset.mems': '1' });
    });

    test.each([
      ['0-10:2/4', '0-1,4-5,8-9'],
      ['all', '0-8191'],
      ['2-N', '2-8191'],
    ])('recovery rolls back a cpuset that was written as %s and that the kernel prints as %s', async (to, printed) => {
      const pod = (await runtime.node.registry.pod(SANDBOX))!;
      const steps: Step[] = [
        { kind: 'pod-unified', key: 'cpuset.cpus', from: '0', to },
        // The shim crashed before this step.
        { kind: 'pod-memory', from: bytes(300 * MiB), to: bytes(400 * MiB) },
      ];
      await runtime.node.journal.begin(pod, steps, { volumes: new Map() });
      runtime.writeFile(POD, 'cpuset.cpus', printed);
      await recover(runtime.node);
      expect(found()['cpuset.cpus']).toBe('0');
    });

    test("KEP-1287: the pod's overhead is added before swap is derived from memory, and to huge page limits of the same size", async () => {
      const overhead = {
        memory_limit_in_bytes: criMi(20),
        hugepage_limits: [
          { page_size: '2MB', limit: criMi(2) },
          { page_size: '64KB', limit: criMi(2) },
        ],
      };
      await update(everything, overhead);
      expect(found()).toEqual({
        ...WRITTEN,
        'memory.max': text(420),
        'hugetlb.2MB.max': text(130),
        'hugetlb.2MB.rsvd.max': text(130),
      });
      // Without a memory limit, swap counts from the present one, which contains the overhead.
      await update({ memory_swap_limit_in_bytes: criMi(450) }, overhead);
      expect(found()['memory.swap.max']).toBe(text(50));
      await update({ memory_swap_limit_in_bytes: -1n }, overhead);
      expect(found()['memory.swap.max']).toBe('max');
    });

    test('keeps fields that are not set, and prefers a key of unified to a field', async () => {
      await update({ memory_limit_in_bytes: criMi(400) });
      expect(found()).toEqual({ ...AT_FIRST, 'memory.max': text(400) });
      const unified = { 'memory.swap.max': text(7), 'cpuset.cpus': '2' };
      await update({ ...everything, unified });
      expect(found()).toEqual({ ...WRITTEN, ...unified });
    });
  });

  describe('A8: a field of UpdatePodSandboxResources that the kernel cannot apply', () => {
    test.each<[string, Resources, string]>([
      ['cpuset_cpus', { cpuset_cpus: '0' }, 'cpuset.cpus'],
      ['cpuset_mems', { cpuset_mems: '0' }, 'cpuset.mems'],
      ['hugepage_limits["2MB"]', { hugepage_limits: [{ page_size: '2MB', limit: 0n }] }, 'hugetlb.2MB.max'],
      ['memory_swap_limit_in_bytes', { memory_swap_limit_in_bytes: criMi(400) }, 'memory.swap.max'],
    ])(
      'KEP-1287: a request with %s is rejected with the missing file if the kernel lacks it, and nothing changes',
      async (field, resources, file) => {
        runtime.removeFile(POD, file);
        const rejected = update({ memory_limit_in_bytes: criMi(400), ...resources });
        await expect(rejected).rejects.toMatchObject({
          code: 3,
          reason: 'INVALID_VALUE',
          context: { pod: 'default/web' },
        });
        const [controller] = file.split('.');
        await expect(rejected).rejects.toThrow(`${field}: `);
        await expect(rejected).rejects.toThrow(
          `there is no such file in ${POD}: the kernel has no ${file}, or the cgroup above does not enable the controller ${controller}`,
        );
        expect(runtime.read('memory.max')).toBe(text(300));
      },
    );

    test('accepts unlimited swap and huge pages on a kernel without the controllers', async () => {
      for (const file of ['memory.swap.max', 'hugetlb.2MB.max', 'hugetlb.2MB.rsvd.max']) runtime.removeFile(POD, file);
      const hugepage_limits = [{ page_size: '2MB', limit: MAX_UINT64 }];
      const limits = { memory_limit_in_bytes: criMi(400), memory_swap_limit_in_bytes: -1n };
      expect(await update({ ...limits, hugepage_limits })).toBe(ANSWER);
      expect(runtime.read('memory.max')).toBe(text(400));
    });

    test('sets huge page limits on a kernel without limits on reserved huge pages (before 5.7)', async () => {
      runtime.removeFile(POD, 'hugetlb.2MB.rsvd.max');
      await update({ hugepage_limits: [{ page_size: '2MB', limit: criMi(8) }] });
      expect(runtime.read('hugetlb.2MB.max')).toBe(text(8));
    });

    test.each<[string, Resources, string]>([
      [
        'below the memory limit',
        { memory_limit_in_bytes: criMi(400), memory_swap_limit_in_bytes: criMi(399) },
        'below the',
      ],
      [
        'without a memory limit',
        { memory_limit_in_bytes: -1n, memory_swap_limit_in_bytes: criMi(399) },
        'requires a memory',
      ],
    ])('rejects swap %s', async (_, resources, why) => {
      const rejected = update(resources);
      await expect(rejected).rejects.toMatchObject({ reason: 'INVALID_VALUE' });
      await expect(rejected).rejects.toThrow(why);
      expect(found()).toEqual(AT_FIRST);
    });
  });
});
