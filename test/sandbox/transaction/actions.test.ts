import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { status } from '@grpc/grpc-js';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { sharesOfWeight, weightOfShares } from '../../../src/cgroups/values/conversions.ts';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { Code } from '../../../src/core/grpc.ts';
import type { CpuShares } from '../../../src/core/quantities/numbers.ts';
import { bytes, cpuShares } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { milliCpuToShares } from '../../../src/kubelet/formulas.ts';
import { failure } from '../../../src/runtime/channel/outcome.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import type { PodDescription } from '../../../src/runtime/description.ts';
import { restoreAndLog } from '../../../src/sandbox/operations/forward-update.ts';
import type { ContainerStep, Step } from '../../../src/sandbox/plan/step.ts';
import { NO_CPU_LIMIT } from '../../../src/sandbox/pods/read-pod.ts';
import { PodActions } from '../../../src/sandbox/transaction/actions.ts';
import { recover } from '../../../src/sandbox/transaction/recover.ts';
import type { StepActions } from '../../../src/sandbox/transaction/transaction.ts';
import { containerId, FakeRuntime, RuntimeFailure, SANDBOX } from '../../support/fake-runtime.ts';
import { FakeStoringRuntime } from '../../support/fake-storing-runtime.ts';
import { mi } from '../../support/quantities/mebibytes.ts';
import { interrupted } from '../../support/resize/interrupted.ts';
import { cpu, desired, ResizedPod } from '../../support/resize/resized-pod.ts';

let runtime: FakeRuntime;

afterEach(() => runtime.close());

describe('actions that lower a pod with swap', () => {
  /** Steps that lower the memory limit of a cgroup that uses swap. */

  const text = (count: number): string => String(count * MiB);
  const CONTAINER = `/kubepods/pod1/${containerId(0)}`;

  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    runtime.makePod(text(200), [200 * MiB]);
    mkdirSync(join(runtime.procRoot, 'sys/vm'), { recursive: true });
    writeFileSync(join(runtime.procRoot, 'meminfo'), `MemTotal:  16000000 kB\nSwapFree:  ${512 * 1024} kB\n`);
    const store = new FakeStoringRuntime(runtime);
    store.create(0, { memory_limit_in_bytes: BigInt(200 * MiB), unified: { 'memory.swap.max': 'max' } });
    for (const cgroup of ['/kubepods', '/kubepods/pod1']) runtime.writeFile(cgroup, 'memory.swap.max', 'max');
    for (const cgroup of ['/kubepods/pod1', CONTAINER]) {
      const stat = `anon ${text(60)}\nfile 0\nshmem 0\nactive_anon ${text(60)}\ninactive_anon 0\nunevictable 0`;
      runtime.writeFile(cgroup, 'memory.stat', stat);
      runtime.writeFile(cgroup, 'memory.current', text(60));
      runtime.writeFile(cgroup, 'memory.swap.current', text(40));
    }
  });

  async function apply(step: Step): Promise<unknown> {
    const pod = (await runtime.node.registry.pod(SANDBOX))!;
    const updates = step.kind === 'container' ? [step] : [];
    const actions = new PodActions(runtime.node, pod, { updates, until: performance.now() + 60_000 });
    return actions.apply(step).then(
      () => 'applied',
      (error: unknown) => (error instanceof ShimError ? error.reason : error),
    );
  }

  describe('A8: a pod limit above the usage and below usage and swap together', () => {
    const step = { kind: 'pod-memory', from: bytes(200 * MiB), to: bytes(80 * MiB) } as const;

    test('KEP-1287: a pod limit below usage and swap together is not lowered once the pod has lost its swap', async () => {
      runtime.writeFile('/kubepods/pod1', 'memory.swap.max', '0');
      expect(await apply(step)).toBe('MEMORY_NOT_RECLAIMABLE');
      expect(runtime.read('memory.max')).toBe(text(200));
    });

    test('KEP-1287: a pod limit below usage and swap together is not lowered once a container has lost its swap', async () => {
      runtime.writeFile(CONTAINER, 'memory.swap.max', text(10));
      expect(await apply(step)).toBe('MEMORY_NOT_RECLAIMABLE');
      expect(runtime.read('memory.max')).toBe(text(200));
    });

    test('a pod limit below usage and swap together is lowered while the pod keeps its swap', async () => {
      expect(await apply(step)).toBe('applied');
      expect(runtime.read('memory.max')).toBe(text(80));
    });
  });

  describe('A8: a step that removes the swap of a container and lowers its memory limit', () => {
    const memory = { from: bytes(200 * MiB), to: bytes(80 * MiB) };
    const step = { kind: 'container', id: containerId(0), memory } as const;

    test('rejects a step that lowers a memory limit and removes the swap in its own field', async () => {
      expect(await apply({ ...step, swap: { from: 'max', to: bytes(0) } })).toBe('MEMORY_NOT_RECLAIMABLE');
      expect(runtime.limitOf(0)).toBe(200 * MiB);
    });

    test('rejects a step that lowers a memory limit and takes swap by memory.swap.max in its settings', async () => {
      const settings = { 'memory.swap.max': { from: 'max', to: text(10) } };
      expect(await apply({ ...step, settings })).toBe('MEMORY_NOT_RECLAIMABLE');
      expect(runtime.limitOf(0)).toBe(200 * MiB);
    });

    test('applies a step that lowers a memory limit and keeps memory.swap.max', async () => {
      expect(await apply({ ...step, settings: { 'memory.swap.max': { from: 'max', to: 'max' } } })).toBe('applied');
      expect(runtime.limitOf(0)).toBe(80 * MiB);
    });
  });
});

describe('rollback of actions', () => {
  /** Values that the rollback of a failed transaction does not change. */

  const POD = '/kubepods/pod1';
  let web: ResizedPod;

  beforeEach(async () => {
    web = await ResizedPod.start();
    runtime = web.runtime;
    web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
  });

  describe('the rollback of a raised pod limit that was not written', () => {
    /** Nearly all of the pod's limit is in use, most of it by page cache. */
    beforeEach(() => {
      runtime.writeFile(POD, 'memory.stat', `anon ${20 * MiB}\nshmem 0\nunevictable 0\nfile ${270 * MiB}`);
      runtime.writeFile(POD, 'memory.current', String(290 * MiB));
    });
    /** Records the writes to the pod's cgroup, and lets the first one of memory.max fail. */
    function watch(failure?: Error): string[] {
      const writes: string[] = [];
      const { tree } = runtime.node;
      const [write, reclaim] = [tree.write.bind(tree), tree.reclaim.bind(tree)];
      let failing = failure;
      vi.spyOn(tree, 'write').mockImplementation((cgroup, change) => {
        if (failing !== undefined && change.file === 'memory.max') {
          const error = failing;
          failing = undefined;
          return Promise.reject(error);
        }
        if (cgroup === POD) writes.push(`${change.file} ${JSON.stringify(change.value)}`);
        return write(cgroup, change);
      });
      vi.spyOn(tree, 'reclaim').mockImplementation((cgroup, amount) => {
        writes.push('memory.reclaim');
        return reclaim(cgroup, amount);
      });
      return writes;
    }
    const raise = (deadline = performance.now() + 60_000): Promise<unknown> =>
      web.resize(desired({ c0: { memory: mi(150) } }), { deadline });

    test('a rollback writes nothing if the deadline passed before the first write', async () => {
      const writes = watch();
      await expect(raise(performance.now() - 1)).rejects.toMatchObject({ reason: 'DEADLINE' });
      expect(writes).toEqual([]);
    });

    test('a rollback reclaims nothing if the write of the raised pod limit failed', async () => {
      const writes = watch(new ShimError(Code.UNAVAILABLE, Reason.SYSTEMD_UNAVAILABLE, 'systemd does not respond'));
      await expect(raise()).rejects.toMatchObject({ reason: 'SYSTEMD_UNAVAILABLE' });
      expect(writes).toEqual([`memory.max ${300 * MiB}`]);
      const pod = (await runtime.node.registry.pod(SANDBOX))!;
      expect(runtime.node.journal.transactionOf(pod)).toBeUndefined();
    });
  });

  describe('the rollback of a container that another program has updated', () => {
    const C0 = `${POD}/${containerId(0)}`;
    /** Another program writes to c0 while the update of c1 runs, which fails. */
    function interfere(files: Readonly<Record<string, string>>): void {
      runtime.wrapResponder('UpdateContainerResources', (request, before) => {
        if (runtime.decodeUpdate(request).container_id !== containerId(1)) return before(request);
        for (const [file, content] of Object.entries(files)) runtime.writeFile(C0, file, content);
        throw new RuntimeFailure(status.UNKNOWN, 'runc failed');
      });
    }
    const resize = (): Promise<unknown> =>
      web.resize(desired({ c0: { memory: mi(150), cpu: cpu(30_000) }, c1: { memory: mi(250) } }));
    const found = (): unknown[] => [runtime.limitOf(0) / MiB, runtime.read(`${containerId(0)}/cpu.max`)];

    test('a rollback keeps the values that another program has set', async () => {
      interfere({ 'memory.max': String(120 * MiB), 'cpu.max': '15000 100000' });
      await expect(resize()).rejects.toMatchObject({ code: status.UNKNOWN });
      expect(found()).toEqual([120, '15000 100000']);
      expect(
        runtime.warnings.filter(({ step }) => typeof step === 'string' && step.includes(containerId(0))),
      ).toHaveLength(1);
    });

    test('a rollback keeps the memory limit that another program has set, and restores the CPU limit', async () => {
      interfere({ 'memory.max': String(120 * MiB) });
      await expect(resize()).rejects.toMatchObject({ code: status.UNKNOWN });
      expect(found()).toEqual([120, '10000 100000']);
    });

    test('a rollback restores all values of a container if no other program has changed them', async () => {
      interfere({});
      await expect(resize()).rejects.toMatchObject({ code: status.UNKNOWN });
      expect(found()).toEqual([100, '10000 100000']);
    });

    test('a rollback keeps the limit of another program if the runtime has stored the values of the update', async () => {
      const store = new FakeStoringRuntime(runtime);
      store.create(0, { memory_limit_in_bytes: BigInt(100 * MiB), cpu_quota: 10_000n, cpu_period: 100_000n });
      interfere({ 'memory.max': String(120 * MiB) });
      await expect(resize()).rejects.toMatchObject({ code: status.UNKNOWN });
      expect(found()).toEqual([120, '10000 100000']);
    });
  });

  describe('the rollback of an update', () => {
    const { found, journal } = interrupted(() => runtime);
    const UPDATE = 'UpdateContainerResources';
    /** Decides which calls the runtime does not receive, because containerd is down. */
    let isAway: (method: string, request: Buffer) => boolean;
    beforeEach(() => {
      isAway = () => false;
      const call = runtime.backend.call.bind(runtime.backend);
      vi.spyOn(runtime.backend, 'call').mockImplementation((path, request, options) => {
        if (!isAway(path.slice(path.lastIndexOf('/') + 1), request)) return call(path, request, options);
        return Promise.reject(
          failure({ code: status.UNAVAILABLE, details: 'No connection established', isUnsent: true }),
        );
      });
      runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
    });
    const goesBefore = (isLast: (method: string, request: Buffer) => boolean): void => {
      let isGone = false;
      isAway = (method, request) => (isGone ||= isLast(method, request));
    };
    const isUpdateOf = (index: number) => (method: string, request: Buffer) =>
      method === UPDATE && runtime.decodeUpdate(request).container_id === containerId(index);
    const updated = (): string[] => runtime.calls.filter((method) => method === UPDATE);

    test.each([
      ['raises', 150],
      ['lowers', 50],
    ])(
      'the rollback of an update that %s a limit and was never sent makes no call and leaves nothing to recover',
      async (_how, memory) => {
        goesBefore(isUpdateOf(0));
        const error: unknown = await web
          .resize(desired({ c0: { memory: mi(memory) } }))
          .catch((thrown: unknown) => thrown);
        expect(error).toMatchObject({ code: status.UNAVAILABLE, isUnsent: true });
        expect([found(), journal(), updated()]).toEqual([[300, 100, 200], [], []]);
      },
    );

    test('the rollback of an update makes no call if the lookup of its container failed before it was sent', async () => {
      const pod = (await runtime.node.registry.pod(SANDBOX))!;
      isAway = () => true;
      const step = { kind: 'container' as const, id: containerId(0), memory: { from: mi(100), to: mi(50) } };
      const running = new PodActions(runtime.node, pod, { updates: [step], onHigh: () => Promise.resolve() });
      await expect(running.apply(step)).rejects.toMatchObject({ isUnsent: true });
      await running.rollBack(step);
      expect(updated()).toEqual([]);
    });

    test('a rollback repeats the update that was sent, and not the later one that was never sent', async () => {
      isAway = isUpdateOf(1);
      const resized = web.resize(desired({ c0: { memory: mi(150) }, c1: { memory: mi(250) } }));
      await expect(resized).rejects.toMatchObject({ isUnsent: true });
      expect([found(), journal(), updated()]).toEqual([[300, 100, 200], [], [UPDATE, UPDATE]]);
    });

    test('the recovery of the pod limit makes no call for an update that was never sent', async () => {
      goesBefore(isUpdateOf(0));
      const { tree } = runtime.node;
      const write = tree.write.bind(tree);
      let isBroken = true;
      vi.spyOn(tree, 'write').mockImplementation((cgroup, change) =>
        isBroken && change.value === mi(300) ? Promise.reject(new Error('EIO')) : write(cgroup, change),
      );
      const resized = web.resize(desired({ c0: { memory: mi(150) } }));
      await expect(resized).rejects.toMatchObject({ reason: 'UNDO_FAILED' });
      expect([found(), journal().length]).toEqual([[350, 100, 200], 1]);
      isBroken = false;
      isAway = () => false;
      expect(await recover(runtime.node)).toBe(true);
      expect([found(), journal(), updated()]).toEqual([[300, 100, 200], [], []]);
    });

    test('the rollback of an update that was sent and could not be verified is repeated until it succeeds', async () => {
      let isSent = false;
      isAway = (method, request) => {
        const wasSent = isSent;
        isSent ||= isUpdateOf(0)(method, request);
        // The shim has to request the path of the container's cgroup.
        if (isSent) runtime.node.cgroups.forget(containerId(0));
        return wasSent;
      };
      const resized = web.resize(desired({ c0: { memory: mi(150) } }));
      await expect(resized).rejects.toMatchObject({ reason: 'UNDO_FAILED' });
      expect(found()).toEqual([350, 150, 200]);
      expect(journal()).toHaveLength(1);
      isAway = () => false;
      expect(await recover(runtime.node)).toBe(true);
      expect([found(), journal()]).toEqual([[300, 100, 200], []]);
    });
  });

  describe('the rollback of a container whose cgroup files another program has written', () => {
    const { begin, journal } = interrupted(() => runtime);
    const ID = containerId(0);
    const size = (mebibytes: number): string => String(mebibytes * MiB);
    const step: ContainerStep = {
      kind: 'container',
      id: ID,
      memory: { from: mi(100), to: bytes(150 * MiB + 100) },
      cpu: { from: cpu(10_000), to: cpu(30_000) },
      shares: { from: cpuShares(102), to: cpuShares(204) },
      swap: { from: mi(64), to: mi(128) },
      settings: {
        'memory.high': { from: size(90), to: String(140 * MiB + 100) },
        'memory.low': { from: size(10), to: size(20) },
      },
    };
    const old = {
      'memory.max': size(100),
      'cpu.max': '10000 100000',
      'cpu.weight': '17',
      'memory.swap.max': size(64),
      'memory.high': size(90),
      'memory.low': size(10),
    };
    const others = {
      'memory.max': size(120),
      'cpu.max': '15000 100000',
      'cpu.weight': '500',
      'memory.swap.max': size(32),
      'memory.high': size(110),
      'memory.low': size(15),
    };
    /** The values of the container, and those in the store of the runtime. */
    const files = (): Record<string, string> =>
      Object.fromEntries(Object.keys(old).map((file) => [file, runtime.read(`${ID}/${file}`)]));
    const write = (written: Readonly<Record<string, string>>): void => {
      for (const [file, content] of Object.entries(written)) runtime.writeFile(`${POD}/${ID}`, file, content);
    };
    let store: FakeStoringRuntime;
    beforeEach(() => {
      store = new FakeStoringRuntime(runtime);
      const cri = (mebibytes: number): bigint => BigInt(mebibytes * MiB);
      const limits = { cpu_quota: 10_000n, cpu_period: 100_000n, cpu_shares: 102n };
      const memory = { memory_limit_in_bytes: cri(100), memory_swap_limit_in_bytes: cri(164) };
      store.create(0, { ...limits, ...memory, unified: { 'memory.high': size(90), 'memory.low': size(10) } });
      runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
      runtime.writeFile(POD, 'memory.max', size(400));
    });
    const running = async (): Promise<StepActions> =>
      new PodActions(runtime.node, (await runtime.node.registry.pod(SANDBOX))!, { updates: [step] });
    const recovered = async (meanwhile: () => void): Promise<void> => {
      await begin([step, { kind: 'pod-memory', from: mi(400), to: mi(300) }]);
      await (await running()).apply(step);
      meanwhile();
      expect(await recover(runtime.node)).toBe(true);
      expect(journal()).toEqual([]);
    };
    /** The events that lead to a rollback of the step, and the number of updates if nothing has to be restored. */
    const ways: readonly (readonly [string, (meanwhile: () => void) => Promise<void>, number])[] = [
      [
        'by the transaction, since a later step has failed',
        async (meanwhile) => {
          const actions = await running();
          await actions.apply(step);
          meanwhile();
          await actions.rollBack(step);
        },
        1,
      ],
      ['by the recovery', recovered, 1],
      [
        'by the recovery after a restart, which first repeats the present values, since the update may not be answered',
        (meanwhile) =>
          recovered(() => {
            meanwhile();
            runtime.node.journal.unanswered.add(SANDBOX, [step]);
          }),
        2,
      ],
    ];
    const warned = (): unknown[] => runtime.warnings.map(({ found }) => found).filter((found) => found !== undefined);

    describe.each(ways)('%s', (_how, rollBack, calls) => {
      test('a rollback restores all values if no other program has written them, including those that the kernel rounds to pages', async () => {
        await rollBack(() => write({ 'memory.max': size(150), 'memory.high': size(140) }));
        expect([files(), warned()]).toEqual([old, []]);
      });

      test.each(Object.entries(others))(
        'a rollback keeps a %s of another program, restores the other values, and logs a warning',
        async (file, content) => {
          await rollBack(() => write({ [file]: content }));
          expect(files()).toEqual({ ...old, [file]: content });
          expect(warned()).toHaveLength(1);
          expect(warned()[0]).toContain(file === 'cpu.weight' ? 'cpu shares' : `${file} ${content}`);
        },
      );

      test('a rollback keeps a cpu.weight of another program if the runtime converts shares by the old formula', async () => {
        store.formula = 'old';
        await rollBack(() => write({ 'cpu.weight': '500' }));
        expect(files()).toEqual({ ...old, 'cpu.weight': '500' });
      });

      test('a rollback restores nothing if another program has written all values', async () => {
        await rollBack(() => write(others));
        expect([files(), store.asked.length, warned().length]).toEqual([others, calls, 1]);
      });
    });
  });

  describe('the rollback of a CPU request with a runtime that converts shares by the old formula', () => {
    const ID = containerId(0);
    const ROUND = [1, 5, 10, 20, 25, 50, 75, 100, 150, 200, 230, 250, 300, 400, 415, 435, 500, 600, 750, 800]
      .concat([820, 850, 1000, 1250, 1500, 1600, 1700, 2000, 2250, 2500, 2550, 3000, 3700, 4000, 8000])
      .map((milli) => milliCpuToShares(milli));
    /** Pairs of shares for which the new weight, by the other formula, equals the weight of the old request. */
    const alike = ROUND.flatMap((to) => {
      const inverse = sharesOfWeight(weightOfShares(to, 'old'), 'new');
      return ROUND.filter((from) => from === inverse).map((from): [CpuShares, CpuShares] => [from, to]);
    });
    let store: FakeStoringRuntime;
    beforeEach(() => {
      store = new FakeStoringRuntime(runtime);
      store.formula = 'old';
      runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
    });
    const stepOf = (from: CpuShares, to: CpuShares): ContainerStep => {
      store.create(0, { cpu_shares: BigInt(from) });
      return { kind: 'container', id: ID, shares: { from, to } };
    };
    const pod = async (): Promise<PodDescription> => (await runtime.node.registry.pod(SANDBOX))!;
    /** The container's values in the kernel and in the store of the runtime. */
    const now = (): unknown[] => [runtime.read(`${ID}/cpu.weight`), store.stored(0).cpu_shares];
    const expected = (from: CpuShares): unknown[] => [String(weightOfShares(from, 'old')), BigInt(from)];

    test('a rollback restores any round CPU request with the old formula', async () => {
      expect(alike.length).toBeGreaterThan(5);
      const round = fc.constantFrom(...ROUND);
      const check = async (from: CpuShares, to: CpuShares): Promise<void> => {
        const step = stepOf(from, to);
        const actions = new PodActions(runtime.node, await pod(), { updates: [step] });
        await actions.apply(step);
        await actions.rollBack(step);
        expect(now()).toEqual(expected(from));
      };
      await fc.assert(fc.asyncProperty(round, round, check), { examples: alike, numRuns: alike.length + 100 });
    });

    test.each(alike)('recovery restores %i shares that were raised to %i with the old formula', async (from, to) => {
      const step = stepOf(from, to);
      const { begin, journal } = interrupted(() => runtime);
      runtime.writeFile(POD, 'memory.max', String(400 * MiB));
      await begin([step, { kind: 'pod-memory', from: mi(400), to: mi(300) }]);
      await new PodActions(runtime.node, await pod(), { updates: [step] }).apply(step);
      expect(await recover(runtime.node)).toBe(true);
      expect([now(), journal()]).toEqual([expected(from), []]);
    });

    test.each(alike)('restores %i shares if an update by kubelet to %i shares has failed', async (from, to) => {
      const { id } = stepOf(from, to);
      store.update(
        id,
        decode('LinuxContainerResources', encode('LinuxContainerResources', { cpu_shares: BigInt(to) })),
      );
      const before = { id, memory: 'max', cpu: NO_CPU_LIMIT, shares: from } as const;
      await restoreAndLog(runtime.node, await pod(), before, 'the update has failed');
      expect(now()).toEqual(expected(from));
    });
  });
});
