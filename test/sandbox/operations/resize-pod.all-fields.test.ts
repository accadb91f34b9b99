import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { encode } from '../../../src/runtime/codec.ts';
import { recover } from '../../../src/sandbox/transaction/recover.ts';
import { resizePod } from '../../../src/sandbox/operations/resize-pod.ts';
import { updateContainer } from '../../../src/sandbox/operations/update-container.ts';
import type { Step } from '../../../src/sandbox/plan/step.ts';
import { FakeRuntime, SANDBOX, containerId, containerUpdate } from '../../support/fake-runtime.ts';
import { FakeStoringRuntime } from '../../support/fake-storing-runtime.ts';
import { criMi } from '../../support/quantities/mebibytes.ts';

const text = (count: number): string => String(count * MiB);
const ANSWER = Buffer.from('the answer of the runtime');
const CGROUP = `/kubepods/pod1/${containerId(0)}`;

/** Files that a container has in addition to those of makePod. */
const files = { 'memory.low': '0', 'cpuset.cpus': '', 'cpuset.cpus.effective': '0-3', 'hugetlb.2MB.max': 'max' };
const all = ['memory.max', 'memory.swap.max', 'memory.high', 'memory.low', 'cpuset.cpus', 'hugetlb.2MB.max', 'cpu.max'];
const read = (): string[] => all.map((file) => runtime.read(`${containerId(0)}/${file}`));

let runtime: FakeRuntime;
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
  test('KEP-1287: every field of a successful update is in the kernel, and the pod limit follows', async () => {
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
    // A cpuset that was not set is that of the pod.
    expect(read()).toEqual(before.map((value) => (value === '' ? '0-3' : value)));
    expect(runtime.read('memory.max')).toBe(text(300));
  });

  test.each([
    ['memory.high', 'max'],
    ['memory.low', '0'],
    ['cpuset.cpus', '0-3'],
  ])(
    'KEP-1287: an update with %s that is not in the kernel fails, and its other fields are rolled back',
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
  /** The shim is killed when the runtime has carried it out, before the pod limit is lowered. */
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
    // The pod limit was not raised: it is rolled back, and the swap limit with it.
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
