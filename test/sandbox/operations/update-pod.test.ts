import { status } from '@grpc/grpc-js';
import { Metadata } from '../../../src/core/grpc.ts';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';
import { FakeRuntime, RuntimeFailure, SANDBOX, podConfig } from '../../support/fake-runtime.ts';
import { updatePod } from '../../../src/sandbox/operations/update-pod.ts';

const ANSWER = Buffer.from('the answer of the runtime');

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
});
afterEach(() => runtime.close());

describe('UpdatePodSandboxResources', () => {
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
    // Otherwise the rollback would find the limit of the later request, and leave it.
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
