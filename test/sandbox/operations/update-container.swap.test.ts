import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { ShimError } from '../../../src/core/errors.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import { resizePod } from '../../../src/sandbox/operations/resize-pod.ts';
import { updateContainer } from '../../../src/sandbox/operations/update-container.ts';
import { updatePod } from '../../../src/sandbox/operations/update-pod.ts';
import { FakeRuntime, SANDBOX, containerId, containerUpdate } from '../../support/fake-runtime.ts';
import { FakeStoringRuntime } from '../../support/fake-storing-runtime.ts';
import { outOfTime } from '../../support/out-of-time.ts';
import { criMi } from '../../support/quantities/mebibytes.ts';

/** A memory limit below the anonymous memory in use: it fits where that memory can go to swap, and stays there. */

const text = (count: number): string => String(count * MiB);
const ANSWER = Buffer.from('the answer of the runtime');

let runtime: FakeRuntime;
let store: FakeStoringRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(text(200), [200 * MiB]);
  store = new FakeStoringRuntime(runtime);
  mkdirSync(join(runtime.procRoot, 'sys/vm'), { recursive: true });
  writeFileSync(join(runtime.procRoot, 'meminfo'), `MemTotal:  16000000 kB\nSwapFree:  ${64 * 1024} kB\n`);
  for (const cgroup of ['/kubepods', '/kubepods/pod1']) runtime.writeFile(cgroup, 'memory.swap.max', 'max');
});
afterEach(() => runtime.close());

/** A container with 100 MiB of anonymous memory: this much would be left in memory by a reclaim with swap. */
function create(unified: Readonly<Record<string, string>>): void {
  store.create(0, { memory_limit_in_bytes: criMi(200), memory_swap_limit_in_bytes: -1n, unified: { ...unified } });
  const stat = `anon ${text(100)}\nfile 0\nshmem 0\nactive_anon ${text(100)}\ninactive_anon 0\nunevictable 0`;
  for (const cgroup of ['/kubepods/pod1', `/kubepods/pod1/${containerId(0)}`]) {
    runtime.writeFile(cgroup, 'memory.stat', stat);
    runtime.writeFile(cgroup, 'memory.current', text(100));
    runtime.writeFile(cgroup, 'memory.swap.current', '0');
  }
}

const dryRun = (mebibytes: number) =>
  resizePod(
    runtime.node,
    SANDBOX,
    { pod: {}, containers: new Map([['c0', { memory: bytes(mebibytes * MiB) }]]), volumes: new Map() },
    { dryRun: true, deadline: performance.now() + 60_000 },
  );
const reasonOf = (error: unknown): string | undefined => (error instanceof ShimError ? error.reason : undefined);
/** The usage does not fall in a folder: admission is all that these tests see. */
const rejectedAtOnce = { code: 9, reason: 'MEMORY_NOT_RECLAIMABLE' };

describe('A8: a limit below anonymous memory', () => {
  test('admits a limit below anonymous memory if that memory fits into swap, and otherwise rejects it with figures', async () => {
    create({ 'memory.swap.max': 'max' });
    expect((await dryRun(40)).steps).not.toEqual([]);
    await expect(dryRun(36)).rejects.toMatchObject(rejectedAtOnce);
    await expect(dryRun(36)).rejects.toThrow(`less ${64 * MiB} that fit into swap`);
  });

  test('rejects a limit below anonymous memory for a container that must not swap', async () => {
    create({ 'memory.swap.max': '0' });
    await expect(dryRun(90)).rejects.toMatchObject(rejectedAtOnce);
    await expect(dryRun(90)).rejects.toThrow(/unevictable 0, of/);
  });

  const lowered = (linux: Parameters<typeof containerUpdate>[1]): Promise<unknown> => {
    const request = containerUpdate(containerId(0), { memory_limit_in_bytes: criMi(80), ...linux });
    // RECLAIM_TIMEOUT is the error of an admitted update.
    return outOfTime(runtime.node.tree, (deadline) =>
      updateContainer(runtime.node, request, () => Promise.resolve(ANSWER), { deadline }).catch(reasonOf),
    );
  };

  test('admits a limit below anonymous memory if the update keeps the swap of the container', async () => {
    create({ 'memory.swap.max': 'max' });
    expect(await lowered({})).toBe('RECLAIM_TIMEOUT');
    expect(await lowered({ unified: { 'memory.swap.max': 'max' } })).toBe('RECLAIM_TIMEOUT');
    create({});
    expect(await lowered({ memory_swap_limit_in_bytes: -1n })).toBe('RECLAIM_TIMEOUT');
  });

  test('KEP-1287: a limit below anonymous memory is rejected if the same update takes swap from the container', async () => {
    create({ 'memory.swap.max': 'max' });
    expect(await lowered({ unified: { 'memory.swap.max': '0' } })).toBe('MEMORY_NOT_RECLAIMABLE');
    expect(await lowered({ unified: { 'memory.swap.max': '16M' } })).toBe('MEMORY_NOT_RECLAIMABLE');
    // The runtime sets no swap where an update has memory and no swap.
    create({});
    expect(await lowered({})).toBe('MEMORY_NOT_RECLAIMABLE');
    expect(runtime.limitOf(0)).toBe(200 * MiB);
  });

  test('KEP-1287: an update that takes swap is rejected if its limit is below usage and swap together, even if above the usage', async () => {
    create({ 'memory.swap.max': 'max' });
    const cgroup = `/kubepods/pod1/${containerId(0)}`;
    runtime.writeFile(cgroup, 'memory.current', text(60));
    runtime.writeFile(cgroup, 'memory.stat', `anon ${text(60)}\nfile 0\nshmem 0\nactive_anon ${text(60)}`);
    runtime.writeFile(cgroup, 'memory.swap.current', text(40));
    expect(await lowered({ unified: { 'memory.swap.max': '0' } })).toBe('MEMORY_NOT_RECLAIMABLE');
    expect(runtime.limitOf(0)).toBe(200 * MiB);
  });

  test('KEP-1287: a rollback does not count swap as reclaimable, so the pod limit stays raised if memory is in use', async () => {
    create({ 'memory.swap.max': 'max' });
    writeFileSync(join(runtime.procRoot, 'meminfo'), `MemTotal:  16000000 kB\nSwapFree:  ${128 * 1024} kB\n`);
    const request = containerUpdate(containerId(0), { memory_limit_in_bytes: criMi(400) });
    const refuse = (): Promise<never> => {
      const stat = `anon ${text(250)}\nfile 0\nshmem 0\nactive_anon ${text(250)}\ninactive_anon 0\nunevictable 0`;
      runtime.writeFile('/kubepods/pod1', 'memory.stat', stat);
      runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'memory.stat', stat);
      runtime.writeFile('/kubepods/pod1', 'memory.current', text(250));
      return Promise.reject(new Error('refused by the runtime'));
    };
    const failing = updateContainer(runtime.node, request, refuse, { deadline: performance.now() + 60_000 });
    await expect(failing).rejects.toThrow(/^refused by the runtime$/);
    expect(runtime.read('memory.max')).toBe(text(400));
  });

  test('admits a pod limit below anonymous memory unless the same update takes the swap of the pod', async () => {
    create({ 'memory.swap.max': 'max' });
    const update = (resources: object): Promise<unknown> => {
      const name = 'UpdatePodSandboxResourcesRequest';
      const request = decode(name, encode(name, { pod_sandbox_id: SANDBOX, resources }));
      return outOfTime(runtime.node.tree, (deadline) =>
        updatePod(runtime.node, request, () => Promise.resolve(ANSWER), { deadline }).catch(reasonOf),
      );
    };
    expect(await update({ memory_limit_in_bytes: criMi(80) })).toBe('RECLAIM_TIMEOUT');
    const limits = { memory_limit_in_bytes: criMi(80), memory_swap_limit_in_bytes: criMi(80) };
    expect(await update(limits)).toBe('MEMORY_NOT_RECLAIMABLE');
    expect([runtime.read('memory.max'), runtime.read('memory.swap.max')]).toEqual([text(200), 'max']);
    runtime.writeFile('/kubepods/pod1', 'memory.swap.max', text(32));
    expect(await update(limits)).toBe('MEMORY_NOT_RECLAIMABLE');
    expect(await update({ ...limits, memory_swap_limit_in_bytes: criMi(80 + 64) })).toBe('RECLAIM_TIMEOUT');
    expect(await update({ ...limits, memory_swap_limit_in_bytes: -1n })).toBe('RECLAIM_TIMEOUT');
  });
});
