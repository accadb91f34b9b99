import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { ShimError } from '../../../src/core/errors.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { PodEntry } from '../../../src/kubelet/checkpoint.ts';
import type { DecreaseReport } from '../../../src/sandbox/foresight/decrease.ts';
import { updateContainer } from '../../../src/sandbox/operations/update-container.ts';
import { containerId, containerUpdate, FakeRuntime, SANDBOX } from '../../support/fake-runtime.ts';
import { FakeStoringRuntime } from '../../support/fake-storing-runtime.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';
import { outOfTime } from '../../support/out-of-time.ts';

/** Memory decreases that kubelet admitted on a node with LimitedSwap, and the update which applies them. */

const text = (count: number): string => String(count * MiB);
const CONTAINER = `/kubepods/pod1/${containerId(0)}`;

let runtime: FakeRuntime;
let store: FakeStoringRuntime;
let uid: string;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(text(200), [200 * MiB]);
  store = new FakeStoringRuntime(runtime);
  mkdirSync(join(runtime.procRoot, 'sys/vm'), { recursive: true });
  writeFileSync(join(runtime.procRoot, 'meminfo'), `MemTotal:  16000000 kB\nSwapFree:  ${512 * 1024} kB\n`);
  for (const cgroup of ['/kubepods', '/kubepods/pod1']) runtime.writeFile(cgroup, 'memory.swap.max', 'max');
  const pod = (await runtime.node.registry.pod(SANDBOX))!;
  ({ uid } = pod.metadata);
  runtime.node.registry.learnPod(pod);
  runtime.node.registry.learnContainer({ containerId: containerId(0), sandboxId: SANDBOX, name: 'c0' });
});
afterEach(async () => {
  await runtime.decreaseReclaimer.close();
  await runtime.close();
});

interface Use {
  readonly swapMax: number;
  readonly anon: number;
  readonly swapped: number;
}

function create({ swapMax, anon, swapped }: Use): void {
  store.create(0, { memory_limit_in_bytes: BigInt(200 * MiB), unified: { 'memory.swap.max': text(swapMax) } });
  const stat = `anon ${text(anon)}\nfile 0\nshmem 0\nactive_anon ${text(anon)}\ninactive_anon 0\nunevictable 0`;
  for (const cgroup of ['/kubepods/pod1', CONTAINER]) {
    runtime.writeFile(cgroup, 'memory.stat', stat);
    runtime.writeFile(cgroup, 'memory.current', text(anon));
    runtime.writeFile(cgroup, 'memory.swap.current', text(swapped));
    runtime.writeFile(cgroup, 'memory.high', 'max');
  }
}

/** kubelet's entry of the pod, in MiB. */
const entry = (limit: number, request?: number): PodEntry => ({
  containers: new Map([['c0', { memory: bytes(limit * MiB) }]]),
  pod: undefined,
  ...(request !== undefined && {
    requests: { containers: new Map([['c0', { memory: bytes(request * MiB) }]]), pod: undefined },
  }),
  isComplete: true,
});

/** kubelet admits a limit of 80 MiB. Returns the report: usage is lowered below it, or the reason for the deferral. */
async function reportOf(request: { readonly before?: number; readonly after?: number }): Promise<DecreaseReport> {
  const { decreaseReclaimer } = runtime;
  runtime.actuated.set(uid, entry(200, request.before));
  runtime.allocated.set(uid, entry(80, request.after));
  // kubelet is about to compare usage and limit.
  void decreaseReclaimer.comparable(uid, 'cadvisor');
  return await expect
    .poll(() => decreaseReclaimer.reportOf(uid), LONG_WAIT)
    .toBeDefined()
    .then(() => decreaseReclaimer.reportOf(uid)!);
}

/** Sends kubelet's update, with the swap limit from its formula. */
const applied = (swap: number): Promise<unknown> => {
  const linux = { memory_limit_in_bytes: BigInt(80 * MiB), unified: { 'memory.swap.max': text(swap) } };
  const request = containerUpdate(containerId(0), linux);
  // RECLAIM_TIMEOUT is the error of an admitted update.
  return outOfTime(runtime.node.tree, (deadline) =>
    updateContainer(runtime.node, request, () => Promise.resolve(Buffer.alloc(0)), { deadline }).then(
      () => 'applied',
      (error: unknown) => (error instanceof ShimError ? error.reason : error),
    ),
  );
};

describe('A8: a pending decrease of a container that may swap', () => {
  test('KEP-1287: a pending decrease counts the free swap of a container if its request stays below the limit, like the update', async () => {
    create({ swapMax: 64, anon: 100, swapped: 0 });
    expect(await reportOf({ before: 40, after: 40 })).toMatchObject({ state: 'InProgress' });
    await runtime.decreaseReclaimer.release(uid);
    expect(await applied(64)).toBe('RECLAIM_TIMEOUT');
  });

  test('a pending decrease counts the swap that a lower request leaves, like the update', async () => {
    create({ swapMax: 64, anon: 100, swapped: 0 });
    expect(await reportOf({ before: 40, after: 20 })).toMatchObject({ state: 'InProgress' });
    await runtime.decreaseReclaimer.release(uid);
    expect(await applied(32)).toBe('RECLAIM_TIMEOUT');
  });

  test('a pending decrease counts no more than the swap that a lower request leaves', async () => {
    create({ swapMax: 64, anon: 100, swapped: 0 });
    expect(await reportOf({ before: 40, after: 10 })).toMatchObject({
      state: 'Deferred',
      reason: 'MEMORY_NOT_RECLAIMABLE',
    });
    expect(await applied(16)).toBe('MEMORY_NOT_RECLAIMABLE');
  });

  test('KEP-1287: a pending decrease counts no swap if the limit becomes the request, since the update sets memory.swap.max to 0', async () => {
    create({ swapMax: 64, anon: 100, swapped: 0 });
    expect(await reportOf({ before: 80, after: 80 })).toMatchObject({
      state: 'Deferred',
      reason: 'MEMORY_NOT_RECLAIMABLE',
    });
    expect(await applied(0)).toBe('MEMORY_NOT_RECLAIMABLE');
  });

  test('KEP-1287: a decrease to a limit above usage but below the sum of usage and swap is Deferred if the update takes the swap', async () => {
    create({ swapMax: 64, anon: 60, swapped: 40 });
    const report = await reportOf({ before: 80, after: 80 });
    expect(report).toMatchObject({ state: 'Deferred', reason: 'MEMORY_NOT_RECLAIMABLE' });
    expect(report.message).toContain(`and ${40 * MiB} in swap above its limit`);
    expect(await applied(0)).toBe('MEMORY_NOT_RECLAIMABLE');
  });

  test('a pending decrease counts no swap if the requests are unknown', async () => {
    create({ swapMax: 64, anon: 100, swapped: 0 });
    expect(await reportOf({})).toMatchObject({ state: 'Deferred', reason: 'MEMORY_NOT_RECLAIMABLE' });
  });
});
