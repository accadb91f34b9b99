import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { microseconds } from '../../../src/core/quantities/numbers.ts';
import { encode } from '../../../src/runtime/codec.ts';
import { resizePod } from '../../../src/sandbox/operations/resize-pod.ts';
import { updateContainer } from '../../../src/sandbox/operations/update-container.ts';
import type { StepRecord } from '../../../src/sandbox/plan/step.ts';
import { FakeRuntime, RuntimeFailure, SANDBOX, containerId, containerUpdate } from '../../support/fake-runtime.ts';
import { FakeStoringRuntime } from '../../support/fake-storing-runtime.ts';
import { criMi, mi } from '../../support/quantities/mebibytes.ts';

const text = (count: number): string => String(count * MiB);
const ANSWER = Buffer.from('the answer of the runtime');
const CGROUP = `/kubepods/pod1/${containerId(0)}`;

let runtime: FakeRuntime;
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
afterEach(() => runtime.close());

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
      // Without those of the correction of the pod limit.
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
    // containerd loses the limit on swap where a plugin answers.
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
