import { readdirSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { CgroupTree } from '../../../src/cgroups/tree.ts';
import { encode } from '../../../src/runtime/codec.ts';
import { recover, recoverPod } from '../../../src/sandbox/transaction/recover.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { Step } from '../../../src/sandbox/plan/step.ts';
import { FakeRuntime, SANDBOX, containerId } from '../../support/fake-runtime.ts';
import { mi } from '../../support/quantities/mebibytes.ts';

/** Kernel or runtime reads that fail during a recovery: it stops in a safe state, and the next one continues. */

const BEFORE = [300, 100, 200];

const raise: readonly Step[] = [
  { kind: 'pod-memory', from: mi(300), to: mi(400) },
  { kind: 'container', id: containerId(0), memory: { from: mi(100), to: mi(150) } },
  { kind: 'container', id: containerId(1), memory: { from: mi(200), to: mi(250) } },
];
const transfer: readonly Step[] = [
  { kind: 'container', id: containerId(1), memory: { from: mi(200), to: mi(50) } },
  { kind: 'container', id: containerId(0), memory: { from: mi(100), to: mi(250) } },
];
const lower: readonly Step[] = [
  { kind: 'container', id: containerId(1), memory: { from: mi(200), to: mi(50) } },
  { kind: 'pod-memory', from: mi(300), to: mi(150) },
];
const raiseLowered: readonly Step[] = [
  { kind: 'pod-memory', from: mi(150), to: mi(250) },
  { kind: 'container', id: containerId(0), memory: { from: mi(100), to: mi(200) } },
];

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
  runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
});
afterEach(async () => {
  vi.restoreAllMocks();
  await runtime.close();
});

const pod = async () => (await runtime.node.registry.pod(SANDBOX))!;
const found = (): number[] => [
  Number(runtime.read('memory.max')) / MiB,
  ...[0, 1].map((index) => runtime.limitOf(index) / MiB),
];
const has = ([podMemory = 0, ...containers]: readonly number[]): void => {
  runtime.writeFile('/kubepods/pod1', 'memory.max', String(podMemory * MiB));
  for (const [index, memory] of containers.entries())
    runtime.writeFile(`/kubepods/pod1/${containerId(index)}`, 'memory.max', String(memory * MiB));
};
const begin = async (steps: readonly Step[]) =>
  runtime.node.journal.begin(await pod(), steps, { volumes: runtime.node.policies.records(SANDBOX) });
const journal = (): string[] => readdirSync(runtime.stateFolder).filter((name) => name.endsWith('.json'));

/** The states in which the pod's limit was below the sum of its containers'. */
let unsafe: number[][];
const check = (): void => {
  const [podMemory = 0, ...containers] = found();
  if (containers.reduce((sum, memory) => sum + memory, 0) > podMemory) unsafe.push(found());
};
beforeEach(() => {
  unsafe = [];
  // Before each update.
  runtime.applyUpdates(() => {
    check();
    return false;
  });
});

/** Lets one read of limits or of a container fail. Returns whether there were so many. */
function failRead(number: number): () => boolean {
  const { tree, registry } = runtime.node;
  let reads = 0;
  const failing = (): void => {
    check();
    reads += 1;
    if (reads === number) throw new Error('EIO');
  };
  const readLimits = tree.readLimits.bind(tree);
  vi.spyOn(tree, 'readLimits').mockImplementation(async (cgroup) => {
    failing();
    return readLimits(cgroup);
  });
  const describeContainer = registry.describeContainer.bind(registry);
  vi.spyOn(registry, 'describeContainer').mockImplementation(async (id) => {
    failing();
    return describeContainer(id);
  });
  return () => reads >= number;
}

/** Recovers with each of its reads failing in turn, then without a failure. Returns the states after failures. */
async function failEachRead(prepare: () => Promise<void>): Promise<number[][]> {
  const stops: number[][] = [];
  for (let number = 1; ; number += 1) {
    await prepare();
    const hasFailed = failRead(number);
    const isRecovered = await recover(runtime.node);
    vi.restoreAllMocks();
    if (!hasFailed()) return stops;
    check();
    expect([number, isRecovered || journal().length]).toEqual([number, isRecovered ? true : 1]);
    stops.push(found());
    expect(await recover(runtime.node)).toBe(true);
    check();
    expect([number, journal(), unsafe]).toEqual([number, [], []]);
    stops.push(found());
  }
}

const after = (stops: readonly number[][]): number[][] => stops.filter((_, at) => at % 2 === 1);

describe('a recovery in which one read fails', () => {
  test.each([
    ['a raise', [raise], [400, 150, 250]],
    ['a transfer', [transfer], [300, 250, 50]],
    ['a decrease and a raise after it', [lower, raiseLowered], [250, 200, 50]],
  ])(
    'KEP-1287: if a read fails, recovery keeps the sum below the pod limit, and the next one rolls back the rest: %s',
    async (_, transactions, applied) => {
      const stops = await failEachRead(async () => {
        for (const steps of transactions) await (await begin(steps)).undoing();
        has(applied);
      });
      expect(stops.length).toBeGreaterThan(10);
      expect(new Set(after(stops).map(String))).toEqual(new Set([String(BEFORE)]));
      // Some of them have failed half-way.
      expect(new Set(stops.map(String)).size).toBeGreaterThan(2);
    },
  );

  test('a failed read does not end a fully applied transaction as rolled back', async () => {
    const applied = [400, 150, 250];
    const stops = await failEachRead(async () => {
      await begin(raise);
      has(applied);
    });
    expect(stops.length).toBeGreaterThan(4);
    expect(new Set(stops.map(String))).toEqual(new Set([String(applied)]));
  });

  test('a failed read requests another recovery, also if the recovery ran before a request', async () => {
    const asked = vi.fn();
    runtime.node.journal.onUnfinished(asked);
    await (await begin(raise)).undoing();
    has([400, 150, 250]);
    asked.mockClear();
    // As the last step is compared: the containers are rolled back.
    vi.spyOn(runtime.node.tree, 'readLimits').mockImplementation((cgroup) => {
      if (found()[1] === 100) return Promise.reject(new Error('EIO'));
      return CgroupTree.prototype.readLimits.call(runtime.node.tree, cgroup);
    });
    await expect(recoverPod(runtime.node, await pod())).rejects.toMatchObject({ reason: 'UNDO_FAILED' });
    expect([asked.mock.calls.length > 0, found()]).toEqual([true, [400, 100, 200]]);
    expect(runtime.node.journal.transactionOf(await pod())?.failed).toContain('EIO');
  });
});
