import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Messages, Partially } from '../../../src/runtime/messages.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { recover } from '../../../src/sandbox/transaction/recover.ts';
import type { Step } from '../../../src/sandbox/plan/step.ts';
import { updatePod } from '../../../src/sandbox/operations/update-pod.ts';
import { FakeRuntime, SANDBOX } from '../../support/fake-runtime.ts';
import { criMi } from '../../support/quantities/mebibytes.ts';

/** Swap, cpusets and huge page limits of the pod's own cgroup. No test node's kernel has cpusets or huge pages. */

const text = (count: number): string => String(count * MiB);
const ANSWER = Buffer.from('the answer of the runtime');
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

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(text(300), [100 * MiB, 200 * MiB]);
  runtime.writeCgroup(POD, { ...AT_FIRST, 'cpu.max': '20000 100000', 'cpu.weight': '39' });
  runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
});
afterEach(() => runtime.close());

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
      // The crash came before this one.
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
