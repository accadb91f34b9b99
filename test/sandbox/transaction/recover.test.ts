import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { PreviousHigh } from '../../../src/cgroups/memory-high.ts';
import { isMarkedHigh, markedHigh } from '../../../src/cgroups/memory-high.ts';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { Code } from '../../../src/core/grpc.ts';
import type { Bytes, Limit } from '../../../src/core/quantities/numbers.ts';
import { bytes, cpuShares, microseconds } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { encode } from '../../../src/runtime/codec.ts';
import type { PodDescription } from '../../../src/runtime/description.ts';
import type { LoadedRecord } from '../../../src/sandbox/journal/loader.ts';
import type { RequestedVolume, VolumeRecord } from '../../../src/sandbox/journal/record.ts';
import type { JournalOptions } from '../../../src/sandbox/journal/store.ts';
import { Journal } from '../../../src/sandbox/journal/store.ts';
import { resizePod } from '../../../src/sandbox/operations/resize-pod.ts';
import { updateContainer } from '../../../src/sandbox/operations/update-container.ts';
import type { Step } from '../../../src/sandbox/plan/step.ts';
import { readPodView } from '../../../src/sandbox/report/pod-view.ts';
import { recover, recoverPod } from '../../../src/sandbox/transaction/recover.ts';
import { eventually, timerlessClock } from '../../support/fake-clock.ts';
import { containerId, containerUpdate, FakeRuntime, SANDBOX } from '../../support/fake-runtime.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';
import { mi } from '../../support/quantities/mebibytes.ts';
import { interrupted } from '../../support/resize/interrupted.ts';

let runtime: FakeRuntime;

const CGROUP = `/kubepods/pod1/${containerId(0)}`;

describe('recovery of a resize', () => {
  const cpu = (quota: number) => ({ quota: microseconds(quota), period: microseconds(100_000) });

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
      const step: Step = {
        kind: 'container',
        id: containerId(0),
        shares: { from: cpuShares(102), to: cpuShares(204) },
      };
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
      // The running container fits into the old limit.
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
});

describe('busy pods', () => {
  const OTHER = 'b'.repeat(64);
  const WITHIN = { timeout: 60_000 };
  let other: PodDescription;
  /** Lets the request that holds the lock of the first pod end. */
  let endRequest: () => void;

  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    runtime.makePod(String(400 * MiB), [150 * MiB, 200 * MiB]);
    runtime.applyUpdates();
    runtime.writeCgroup('/kubepods/pod2', {
      'memory.max': String(400 * MiB),
      'cpu.max': 'max 100000',
      'cpu.weight': '39',
    });
    runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }, { id: OTHER }] }));
    const first = await pod();
    other = {
      ...first,
      sandboxId: OTHER,
      cgroupParent: '/kubepods/pod2',
      metadata: { ...first.metadata, name: 'db', uid: 'uid-2' },
    };
    runtime.node.registry.learnPod(other);
  });

  afterEach(() => {
    vi.useRealTimers();
    return runtime.close();
  });

  const { pod, begin, found } = interrupted(
    () => runtime,
    [
      { kind: 'pod-memory', from: mi(300), to: mi(400) },
      { kind: 'container', id: containerId(0), memory: { from: mi(100), to: mi(150) } },
    ],
  );

  /** Leaves a transaction of each pod that has to be rolled back. The record of the first pod is the older one. */
  async function interruptBoth(): Promise<void> {
    await (await begin()).undoing();
    const steps = [{ kind: 'pod-memory', from: mi(300), to: mi(400) }] as const;
    await (await runtime.node.journal.begin(other, steps, { volumes: new Map() })).undoing();
  }

  /** Starts a request that holds the lock of the first pod. */
  function holdFirstPod(): void {
    const { promise, resolve } = Promise.withResolvers<unknown>();
    endRequest = () => resolve(undefined);
    void runtime.node.lock.run('uid-1', () => promise);
  }

  const limitOfOther = (): number =>
    Number(readFileSync(join(runtime.cgroupRoot, 'kubepods/pod2/memory.max'), 'utf8')) / MiB;

  test('a recovery skips a pod whose lock a request holds, and the next recovery recovers it', async () => {
    await interruptBoth();
    holdFirstPod();
    const recovered = recover(runtime.node);
    await expect.poll(limitOfOther, WITHIN).toBe(300);
    expect(await recovered).toBe(false);
    expect(found()).toEqual([400, 150, 200]);
    endRequest();
    expect(await recover(runtime.node)).toBe(true);
    expect(found()).toEqual([300, 100, 200]);
    expect(runtime.node.journal.unfinished()).toEqual([]);
  });

  test('a pod whose runtime does not answer does not delay the recovery of another pod', async () => {
    await interruptBoth();
    const answered = Promise.withResolvers<unknown>();
    runtime.wrapResponder('UpdateContainerResources', async (request, before) => {
      await answered.promise;
      return before(request);
    });
    // A recovery waits a limited time for the answer. No time passes here.
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    const recovered = recover(runtime.node);
    // Unlike expect.poll, this does not advance the fake time.
    await eventually(() => limitOfOther() === 300);
    expect(found()).toEqual([400, 150, 200]);
    answered.resolve(undefined);
    expect(await recovered).toBe(true);
    expect(found()).toEqual([300, 100, 200]);
  });

  test('the volumes of a pod whose lock a request holds are journalled by the next recovery', async () => {
    const volume: VolumeRecord = { policy: { kind: 'absolute', size: mi(64) }, source: 'asked', annotated: false };
    runtime.node.policies.restore(SANDBOX, new Map([['cache', volume]]));
    holdFirstPod();
    let isComplete: boolean | undefined;
    void recover(runtime.node).then((complete) => (isComplete = complete));
    await expect.poll(() => isComplete, WITHIN).toBe(false);
    endRequest();
    expect(await recover(runtime.node)).toBe(true);
    expect(runtime.node.journal.volumesOf(await pod())).toEqual(new Map([['cache', volume]]));
  });
});

describe('holds in the journal', () => {
  let pod: PodDescription;

  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    runtime.makePod(String(192 * MiB), [192 * MiB]);
    runtime.applyUpdates();
    runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
    pod = (await runtime.node.registry.pod(SANDBOX))!;
    await runtime.node.registry.describeContainer(containerId(0));
  });

  afterEach(async () => {
    await runtime.decreaseReclaimer.close();
    await runtime.close();
  });

  const high = (): string => runtime.read(`${containerId(0)}/memory.high`);
  const records = (): string[] => readdirSync(runtime.stateFolder).filter((name) => name.endsWith('.json'));
  const record = (): unknown => JSON.parse(readFileSync(join(runtime.stateFolder, records()[0] ?? ''), 'utf8'));

  describe('a hold that remains after a crash', () => {
    test('KEP-1287: a hold that remains after a crash is ended at the start, and memory.high is restored', async () => {
      await runtime.node.journal.setHolds(pod, [{ cgroup: CGROUP, memoryHigh: mi(180) }]);
      expect(record()).toMatchObject({ holds: [{ cgroup: CGROUP, memoryHigh: 180 * MiB }] });
      runtime.writeFile(CGROUP, 'memory.high', String(markedHigh(mi(56))));
      expect(await recover(runtime.node)).toBe(true);
      expect([high(), records()]).toEqual([String(180 * MiB), []]);
    });

    test('KEP-1287: the end of a hold that remains after a crash keeps a memory.high that another program has set', async () => {
      await runtime.node.journal.setHolds(pod, [{ cgroup: CGROUP, memoryHigh: 'max' }]);
      runtime.writeFile(CGROUP, 'memory.high', String(100 * MiB));
      await recover(runtime.node);
      expect([high(), records()]).toEqual([String(100 * MiB), []]);
    });

    test('KEP-1287: a hold and a transaction that remain after a crash end together, and memory.high has the newer stored value', async () => {
      const { journal } = runtime.node;
      await journal.setHolds(pod, [{ cgroup: CGROUP, memoryHigh: 'max' }]);
      const steps = [{ kind: 'container', id: containerId(0), memory: { from: mi(192), to: mi(64) } }] as const;
      await journal.begin(pod, steps, { volumes: new Map(), highs: [{ cgroup: CGROUP, memoryHigh: mi(150) }] });
      expect(record()).toMatchObject({ holds: [{}], transaction: { highs: [{}] } });
      runtime.writeFile(CGROUP, 'memory.high', String(markedHigh(mi(56))));
      await recover(runtime.node);
      expect([high(), records()]).toEqual([String(150 * MiB), []]);
    });
  });

  test('KEP-1287: a hold whose memory.high cannot be read does not prevent the recovery of a transaction', async () => {
    const { journal } = runtime.node;
    await journal.setHolds(pod, [{ cgroup: '/kubepods/pod1', memoryHigh: 'max' }]);
    await journal.begin(pod, [{ kind: 'pod-memory', from: mi(256), to: mi(192) }], { volumes: new Map() });
    rmSync(join(runtime.cgroupRoot, 'kubepods/pod1/memory.high'));
    expect(await recover(runtime.node)).toBe(false);
    expect(record()).toMatchObject({ holds: [{}] });
    expect(record()).not.toHaveProperty('transaction');
  });

  test('deferred requests and the end of a transaction do not remove the hold from the journal', async () => {
    const { journal } = runtime.node;
    const holds = [{ cgroup: CGROUP, memoryHigh: 'max' }] as const;
    await journal.setHolds(pod, holds);
    await journal.setResizes(pod.metadata.uid, ['a request']);
    const open = await journal.begin(pod, [{ kind: 'pod-memory', from: mi(192), to: mi(64) }], { volumes: new Map() });
    await open.end('done', new Map());
    expect(record()).toMatchObject({ holds, resizes: ['a request'] });
    await journal.setHolds(pod, []);
    expect(record()).not.toHaveProperty('holds');
  });

  /** Makes the container's usage fall once memory.high is lowered, and stay until the test changes it. */
  async function heldContainer(): Promise<void> {
    const limits = (mebibytes: number) => ({
      containers: new Map([['c0', { memory: mi(mebibytes) }]]),
      pod: undefined,
      isComplete: true,
    });
    runtime.allocated.set('uid-1', limits(64));
    runtime.actuated.set('uid-1', limits(192));
    for (const cgroup of [CGROUP, '/kubepods/pod1']) runtime.writeFile(cgroup, 'memory.current', String(120 * MiB));
    // kubelet is about to compare.
    void runtime.decreaseReclaimer.comparable('uid-1', 'cadvisor');
    for (const cgroup of [CGROUP, '/kubepods/pod1']) {
      const file = join(runtime.cgroupRoot, cgroup, 'memory.high');
      await eventually(() => readFileSync(file, 'utf8') !== 'max\n');
      runtime.writeFile(cgroup, 'memory.current', String(50 * MiB));
    }
    await eventually(() => runtime.counted.snapshot().foresight['held'] === 1);
  }

  describe('a hold and a request for the pod', () => {
    test('the journal contains memory.high of container and pod while both are lowered for a hold', async () => {
      await heldContainer();
      expect(record()).toMatchObject({
        holds: [
          { cgroup: CGROUP, memoryHigh: 'max' },
          { cgroup: '/kubepods/pod1', memoryHigh: 'max' },
        ],
      });
      await runtime.decreaseReclaimer.close();
      expect([high(), runtime.read('memory.high'), records()]).toEqual(['max', 'max', []]);
    });

    test('KEP-1287: a hold does not outlast an update of its pod: the update finds memory.high from before the hold', async () => {
      await heldContainer();
      const found: string[] = [];
      const request = containerUpdate(containerId(0), { memory_limit_in_bytes: BigInt(64 * MiB) });
      await updateContainer(runtime.node, request, () => {
        found.push(
          ...(record() as { transaction: { highs: { memoryHigh: string }[] } }).transaction.highs.map(
            ({ memoryHigh }) => memoryHigh,
          ),
        );
        runtime.writeFile(CGROUP, 'memory.max', String(64 * MiB));
        return Promise.resolve(Buffer.alloc(0));
      });
      expect(found).toEqual(['max', 'max']);
      await runtime.decreaseReclaimer.close();
      expect([high(), runtime.read('memory.high')]).toEqual(['max', 'max']);
    });

    test('a decrease is deferred with the error of the update when the update of kubelet fails for the second time', async () => {
      await heldContainer();
      const { decreaseReclaimer } = runtime;
      const inUse = new ShimError(Code.FAILED_PRECONDITION, Reason.VOLUME_IN_USE, 'volume cache is in use');
      const fails = (memory: number): Promise<unknown> => {
        const request = containerUpdate(containerId(0), { memory_limit_in_bytes: BigInt(memory * MiB) });
        return expect(updateContainer(runtime.node, request, () => Promise.reject(inUse))).rejects.toThrow(inUse);
      };
      const heldAgain = (times: number): Promise<void> =>
        eventually(() => runtime.counted.snapshot().foresight['held'] === times);
      // Another program's update is not kubelet's.
      await fails(100);
      await heldAgain(2);
      await fails(64);
      await heldAgain(3);
      expect(decreaseReclaimer.reportOf('uid-1')).toMatchObject({ state: 'InProgress' });
      await fails(64);
      await eventually(() => decreaseReclaimer.reportOf('uid-1')?.state === 'Deferred');
      expect(decreaseReclaimer.reportOf('uid-1')).toMatchObject({ reason: 'VOLUME_IN_USE', message: inUse.message });
      await decreaseReclaimer.close();
    });

    test('a recovery is requested if memory.high cannot be restored when a hold ends, and restores it', async () => {
      await heldContainer();
      let asked = 0;
      runtime.node.journal.onUnfinished(() => (asked += 1));
      const file = join(runtime.cgroupRoot, CGROUP, 'memory.high');
      const lowered = high();
      rmSync(file);
      mkdirSync(file);
      await runtime.decreaseReclaimer.release('uid-1');
      expect(asked).toBe(1);
      rmSync(file, { recursive: true });
      runtime.writeFile(CGROUP, 'memory.high', lowered);
      runtime.actuated.set('uid-1', runtime.allocated.get('uid-1')!);
      expect(await recover(runtime.node)).toBe(true);
      expect([high(), records()]).toEqual(['max', []]);
    });
  });
});

describe('memory.high', () => {
  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    runtime.makePod(String(1024 * MiB), [1024 * MiB]);
    runtime.applyUpdates();
    runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
  });

  afterEach(() => runtime.close());

  /** Simulates a kill of the process during a decrease to 512 MiB. `found`: memory.high after the kill. */
  async function cutOff(previous: PreviousHigh['memoryHigh'], found: Limit<Bytes>, more: object = {}): Promise<string> {
    const pod = (await runtime.node.registry.pod(SANDBOX))!;
    await runtime.node.journal.begin(
      pod,
      [{ kind: 'container', id: containerId(0), memory: { from: mi(1024), to: mi(512) } }],
      { volumes: new Map(), highs: [{ cgroup: CGROUP, memoryHigh: previous, ...more }] },
    );
    runtime.writeFile(CGROUP, 'memory.high', String(found));
    await recover(runtime.node);
    return runtime.read(`${containerId(0)}/memory.high`);
  }

  describe('A7: recovery and memory.high', () => {
    test('recovery restores memory.high from before the reclaim', async () => {
      expect(await cutOff(mi(900), markedHigh(mi(448)))).toBe(String(900 * MiB));
    });

    test('recovery keeps a lower memory.high that another program has written', async () => {
      expect(await cutOff(mi(900), mi(460))).toBe(String(460 * MiB));
    });

    test('recovery keeps a memory.high that another program has written if it was max before', async () => {
      expect(await cutOff('max', mi(460))).toBe(String(460 * MiB));
    });

    test('recovery keeps a memory.high above the stored value, marked or not', async () => {
      expect(await cutOff(mi(300), 'max')).toBe('max');
      expect(await cutOff(mi(300), markedHigh(mi(448)))).toBe(String(markedHigh(mi(448))));
    });

    test('recovery restores a memory.high that version 0.1.0 lowered without a mark, unless it was raised since', async () => {
      expect(await cutOff(mi(900), mi(448), { isUnmarked: true })).toBe(String(900 * MiB));
      expect(await cutOff(mi(900), mi(950), { isUnmarked: true })).toBe(String(950 * MiB));
    });
  });

  describe('a temporary memory.high', () => {
    test('a temporary memory.high is marked, page-aligned, and at most 256 KiB below the requested value', () => {
      for (const asked of [mi(1), mi(56), bytes(300_000), bytes(2 ** 40 + 12_345)]) {
        const marked = markedHigh(asked);
        expect(marked).toBeLessThanOrEqual(asked);
        expect(marked).toBeGreaterThan(asked - 256 * 1024);
        expect(marked % (64 * 1024)).toBe(0);
        expect(isMarkedHigh(marked)).toBe(true);
      }
    });

    test('a temporary memory.high is not confused with whole MiB, no limit or the next page', () => {
      for (const found of ['max', mi(0), mi(56), bytes(markedHigh(mi(56)) + 4096)] as const)
        expect(isMarkedHigh(found)).toBe(false);
    });
  });
});
