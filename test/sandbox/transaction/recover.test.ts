import { existsSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { markedHigh } from '../../../src/cgroups/memory-high.ts';
import { encode } from '../../../src/runtime/codec.ts';
import { recoverPod, recover } from '../../../src/sandbox/transaction/recover.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { cpuShares, microseconds } from '../../../src/core/quantities/numbers.ts';
import { timerlessClock } from '../../support/fake-clock.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';
import { interrupted } from '../../support/resize/interrupted.ts';
import { FakeRuntime, SANDBOX, containerId, containerUpdate } from '../../support/fake-runtime.ts';
import type { Step } from '../../../src/sandbox/plan/step.ts';
import { readPodView } from '../../../src/sandbox/report/pod-view.ts';
import { resizePod } from '../../../src/sandbox/operations/resize-pod.ts';
import { updateContainer } from '../../../src/sandbox/operations/update-container.ts';
import type { RequestedVolume } from '../../../src/sandbox/journal/record.ts';
import type { LoadedRecord } from '../../../src/sandbox/journal/loader.ts';
import { Journal, type JournalOptions } from '../../../src/sandbox/journal/store.ts';
import { mi } from '../../support/quantities/mebibytes.ts';

const cpu = (quota: number) => ({ quota: microseconds(quota), period: microseconds(100_000) });

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
  runtime.applyUpdates();
  runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
});
afterEach(() => runtime.close());

/** The steps of an interrupted resize: they raise the pod and both containers. */
const steps: readonly Step[] = [
  { kind: 'pod-memory', from: mi(300), to: mi(400) },
  { kind: 'container', id: containerId(0), memory: { from: mi(100), to: mi(150) } },
  { kind: 'container', id: containerId(1), memory: { from: mi(200), to: mi(250) } },
];

const half: RequestedVolume = { policy: { kind: 'share', hundredths: 5000 }, annotated: true };
const { pod, begin, has, uses, found, journal } = interrupted(() => runtime, steps);
/** Returns the records that another process reads from the journal. */
const loaded = async (options: JournalOptions = {}): Promise<LoadedRecord[]> => {
  const another = await Journal.open(runtime.stateFolder, { clock: timerlessClock, ...options });
  try {
    return await another.load();
  } finally {
    await another.close();
  }
};

describe('an interrupted resize', () => {
  test('an interrupted resize is finished if all its steps are applied', async () => {
    await begin();
    has(400, 150, 250);
    await recover(runtime.node);
    expect(found()).toEqual([400, 150, 250]);
    expect(journal()).toEqual([]);
    expect(runtime.calls).not.toContain('UpdateContainerResources');
    expect(runtime.warnings.at(-1)).toMatchObject({ pod: SANDBOX, outcome: 'finished' });
  });

  test('an interrupted resize is finished although the disk rejects the write, and leaves the journal once the disk accepts it', async () => {
    await begin();
    has(400, 150, 250);
    renameSync(runtime.stateFolder, `${runtime.stateFolder}-away`);
    writeFileSync(runtime.stateFolder, '');
    await recover(runtime.node);
    rmSync(runtime.stateFolder);
    renameSync(`${runtime.stateFolder}-away`, runtime.stateFolder);
    expect(found()).toEqual([400, 150, 250]);
    expect(runtime.warnings).toContainEqual(expect.objectContaining({ pod: SANDBOX, outcome: 'finished' }));
    expect(runtime.node.journal.unfinished()).toEqual([]);
    expect(journal()).not.toEqual([]);
    await (await runtime.journal).check();
    expect(journal()).toEqual([]);
  });

  test.each([
    ['before its first step', 300, 100, 200],
    ['after the pod step', 400, 100, 200],
    ['after a container step', 400, 150, 200],
  ])(
    'an interrupted resize is rolled back if it stopped %s',
    async (_when, ...values: readonly [number, number, number]) => {
      await begin();
      const [podMemory, ...containers] = values;
      has(podMemory, ...containers);
      await recover(runtime.node);
      expect(found()).toEqual([300, 100, 200]);
      expect(journal()).toEqual([]);
    },
  );

  test('the rollback of an interrupted resize keeps a value that is neither old nor new', async () => {
    await begin();
    has(500, 150, 220);
    await recover(runtime.node);
    expect(found()).toEqual([500, 100, 220]);
    expect(journal()).toEqual([]);
  });

  test('an interrupted resize is rolled back if a container has only one of its two new values', async () => {
    const both: Step = {
      kind: 'container',
      id: containerId(0),
      memory: { from: mi(100), to: mi(50) },
      cpu: { from: cpu(10_000), to: cpu(5000) },
    };
    await begin([both]);
    has(300, 50);
    await recover(runtime.node);
    expect(found()).toEqual([300, 100, 200]);
    expect(runtime.read(`${containerId(0)}/cpu.max`)).toBe('10000 100000');
  });

  test('the rollback of an interrupted resize restores shares only if the runtime stores the new ones', async () => {
    const shares = (stored: bigint): void =>
      runtime.describeContainer(containerId(0), {
        metadata: { name: 'c0' },
        state: 2,
        resources: { linux: { cpu_shares: stored } },
      });
    const asked: bigint[] = [];
    runtime.on('UpdateContainerResources', (request) => {
      asked.push(runtime.decodeUpdate(request).linux!.cpu_shares);
      shares(102n);
      return Buffer.alloc(0);
    });
    const step: Step = { kind: 'container', id: containerId(0), shares: { from: cpuShares(102), to: cpuShares(204) } };
    shares(102n);
    await begin([{ kind: 'pod-memory', from: mi(300), to: mi(400) }, step]);
    has(400);
    await recover(runtime.node);
    expect([found()[0], asked]).toEqual([300, []]);
    shares(204n);
    await begin([{ kind: 'pod-memory', from: mi(300), to: mi(400) }, step]);
    await recover(runtime.node);
    expect([found()[0], asked]).toEqual([300, [102n]]);
  });

  test('the rollback of an interrupted resize restores a memory.high that was lowered for reclaim', async () => {
    const open = await begin();
    await open.lowersHigh(`/kubepods/pod1/${containerId(1)}`, 'max');
    runtime.writeFile(`/kubepods/pod1/${containerId(1)}`, 'memory.high', String(markedHigh(mi(20))));
    await recover(runtime.node);
    expect(runtime.read(`${containerId(1)}/memory.high`)).toBe('max');
    expect(found()).toEqual([300, 100, 200]);
  });

  test('an interrupted rollback continues although all new values are in place', async () => {
    await (await begin()).undoing();
    has(400, 150, 250);
    await recover(runtime.node);
    expect(found()).toEqual([300, 100, 200]);
  });

  test.each([
    ['finished', [400, 150, 250], { cache: { ...half, source: 'asked' } }],
    ['rolled back', [400, 150, 200], undefined],
  ] as const)(
    'an interrupted resize that is %s stores these volume policies: %j',
    async (_end, [podMemory, ...containers], stored) => {
      await begin(steps, new Map([['cache', half]]));
      has(podMemory, ...containers);
      await recover(runtime.node);
      const sizes = runtime.node.journal.volumesOf(await pod());
      expect(sizes.size === 0 ? undefined : Object.fromEntries(sizes)).toEqual(stored);
    },
  );

  test('two interrupted resizes are rolled back step by step, so that no sum exceeds the pod limit', async () => {
    await begin([
      { kind: 'container', id: containerId(0), memory: { from: mi(100), to: mi(50) } },
      { kind: 'pod-memory', from: mi(300), to: mi(250) },
    ]);
    await begin([
      { kind: 'container', id: containerId(1), memory: { from: mi(200), to: mi(150) } },
      { kind: 'pod-memory', from: mi(250), to: mi(200) },
    ]);
    has(200, 50, 150);
    await recover(runtime.node);
    expect(found()).toEqual([300, 100, 200]);
    expect(journal()).toEqual([]);
  });

  test('an interrupted resize is rolled back for the other containers if one container has ended', async () => {
    await begin();
    has(400, 150, 250);
    runtime.writeFile(`/kubepods/pod1/${containerId(1)}`, 'memory.max', String(200 * MiB));
    runtime.removeCgroup(`/kubepods/pod1/${containerId(0)}`);
    await recover(runtime.node);
    expect(runtime.read('memory.max')).toBe(String(300 * MiB));
    expect(journal()).toEqual([]);
  });

  test('an interrupted resize is dropped from the journal if its pod is gone', async () => {
    await begin();
    runtime.removeCgroup('/kubepods/pod1');
    await recover(runtime.node);
    expect(journal()).toEqual([]);
    await begin();
    runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', {}));
    runtime.on('PodSandboxStatus', () => {
      throw new Error('no such pod');
    });
    await recover(runtime.node);
    await expect.poll(journal, LONG_WAIT).toEqual([]);
  });

  test('an interrupted resize from before a reboot is dropped', async () => {
    await begin();
    has(400, 150, 200);
    const [record] = await loaded({ bootId: 'another' });
    expect(record).toBeUndefined();
    expect(journal()).toEqual([]);
    expect(found()).toEqual([400, 150, 200]);
  });
});

describe('a resize whose rollback fails', () => {
  beforeEach(async () => {
    await begin();
    has(400, 150, 200);
    runtime.applyUpdates((id) => id === containerId(0));
  });

  test('KEP-1287: a pod whose rollback fails is marked, and the transaction stays in the journal', async () => {
    await expect(recoverPod(runtime.node, await pod())).rejects.toMatchObject({ code: 13, reason: 'UNDO_FAILED' });
    expect(journal()).toHaveLength(1);
    const { lastError } = await readPodView(runtime.node, runtime.decreaseReclaimer, SANDBOX);
    expect(lastError).toMatchObject({ reason: 'UNDO_FAILED', message: expect.stringContaining('refused') as string });
    // The container keeps its new limit, so the pod keeps its own.
    expect(found()).toEqual([400, 150, 200]);
    // Another process reads the failure from the journal.
    const [record] = await loaded();
    expect(record?.transaction?.failed).toContain('refused');
  });

  test('KEP-1287: after a failed rollback, the pod keeps its new limit if a container that does not run needs it', async () => {
    // The one that runs fits into the old limit.
    const step: Step = { kind: 'container', id: containerId(0), memory: { from: mi(100), to: mi(250) } };
    await begin([{ kind: 'pod-memory', from: mi(300), to: mi(450) }, step]);
    has(450, 250);
    const crashed = containerId(1);
    runtime.removeCgroup(`/kubepods/pod1/${crashed}`);
    for (const index of [0, 1])
      runtime.node.registry.learnContainer({
        containerId: containerId(index),
        sandboxId: SANDBOX,
        name: `c${index}`,
      });
    runtime.describeContainer(crashed, {
      metadata: { name: 'c1' },
      state: 2,
      exit_code: 1,
      resources: { linux: { memory_limit_in_bytes: BigInt(200 * MiB), cpu_quota: 10_000n, cpu_period: 100_000n } },
    });
    await expect(recoverPod(runtime.node, await pod())).rejects.toMatchObject({ reason: 'UNDO_FAILED' });
    expect([runtime.read('memory.max'), runtime.limitOf(0)]).toEqual([String(mi(450)), mi(250)]);
  });

  test('KEP-1287: a failed rollback is recovered before the next request of its pod is applied', async () => {
    await recover(runtime.node);
    runtime.applyUpdates();
    const request = containerUpdate(containerId(1), { memory_limit_in_bytes: BigInt(220 * MiB) });
    let atCall: number[] = [];
    await updateContainer(runtime.node, request, () => {
      atCall = found();
      runtime.writeFile(`/kubepods/pod1/${containerId(1)}`, 'memory.max', String(220 * MiB));
      return Promise.resolve(Buffer.alloc(0));
    });
    expect(atCall).toEqual([320, 100, 200]);
    expect(found()).toEqual([320, 100, 220]);
    expect(journal()).toEqual([]);
  });

  test('a failed rollback stays in the journal if the next request fails too', async () => {
    await recover(runtime.node);
    // The request raises the pod, so it begins another transaction.
    const request = containerUpdate(containerId(1), { memory_limit_in_bytes: BigInt(300 * MiB) });
    const failing = updateContainer(runtime.node, request, () => Promise.reject(new Error('no')));
    await expect(failing).rejects.toThrow('no');
    runtime.applyUpdates();
    await recover(runtime.node);
    expect(found()).toEqual([300, 100, 200]);
    expect(journal()).toEqual([]);
  });

  test('a failed rollback is dropped once a later request succeeds, and the values of that request stay', async () => {
    await recover(runtime.node);
    const request = containerUpdate(containerId(0), { memory_limit_in_bytes: BigInt(150 * MiB) });
    await updateContainer(runtime.node, request, () => Promise.resolve(Buffer.alloc(0)));
    runtime.applyUpdates();
    await recover(runtime.node);
    expect(found().slice(1)).toEqual([150, 200]);
    expect(journal()).toEqual([]);
  });

  test('a failed rollback blocks ResizePod for its pod until it is recovered', async () => {
    const desired = { pod: {}, containers: new Map([['c1', { memory: mi(250) }]]), volumes: new Map() };
    for (const index of [0, 1])
      runtime.node.registry.learnContainer({
        containerId: containerId(index),
        sandboxId: SANDBOX,
        name: `c${index}`,
      });
    const resize = () =>
      resizePod(runtime.node, SANDBOX, desired, { dryRun: false, deadline: performance.now() + 60_000 });
    await expect(resize()).rejects.toMatchObject({ reason: 'UNDO_FAILED' });
    runtime.applyUpdates();
    await resize();
    expect(found()).toEqual([350, 100, 250]);
  });
});

test('recovery does not lower a container to an old limit below its usage', async () => {
  await begin();
  has(400, 150, 200);
  const cgroup = `/kubepods/pod1/${containerId(0)}`;
  uses(cgroup, 120 * MiB);
  await recover(runtime.node);
  expect(found()).toEqual([400, 150, 200]);
  expect(journal()).toHaveLength(1);
  // The container has freed the memory.
  uses(cgroup, 500_000);
  await recover(runtime.node);
  expect(found()).toEqual([300, 100, 200]);
  expect(journal()).toEqual([]);
});

test('a unified key is restored although the kernel prints its value in another form', async () => {
  runtime.writeFile('/kubepods/pod1', 'memory.low', String(32 * MiB));
  await begin([
    { kind: 'pod-unified', key: 'memory.low', from: '0', to: '32M' },
    { kind: 'container', id: containerId(0), memory: { from: mi(100), to: mi(150) } },
  ]);
  await recover(runtime.node);
  expect(runtime.read('memory.low')).toBe('0');
});

test('a pod is recovered although its state folder was removed', async () => {
  await begin();
  has(400, 150, 200);
  rmSync(runtime.stateFolder, { recursive: true });
  await recover(runtime.node);
  expect(found()).toEqual([300, 100, 200]);
  expect(existsSync(join(runtime.stateFolder, 'uid-1.json'))).toBe(false);
});
