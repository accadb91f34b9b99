import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { decode, encode } from '../../../src/runtime/codec.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { FakeRuntime, SANDBOX, containerId, containerUpdate } from '../../support/fake-runtime.ts';
import { resizePod } from '../../../src/sandbox/operations/resize-pod.ts';
import { updateContainer } from '../../../src/sandbox/operations/update-container.ts';
import { updatePod } from '../../../src/sandbox/operations/update-pod.ts';

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.applyUpdates();
  runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
});
afterEach(() => runtime.close());

const resizes = (): object => runtime.counted.snapshot().resizes;
/** The values of a metric family, by label. */
function counts(name: string): Record<string, number> {
  const family = runtime.counted.families.find(({ description }) => description.name === `cri_resize_shim_${name}`);
  const series = [...(family?.series() ?? [])];
  return Object.fromEntries(series.map((one) => [one.labels.join(' '), one.kind === 'number' ? one.value : one.count]));
}

const update = (mebibytes: number, fails?: Error) =>
  updateContainer(
    runtime.node,
    containerUpdate(containerId(0), { memory_limit_in_bytes: BigInt(mebibytes * MiB) }),
    () => {
      if (fails !== undefined) return Promise.reject(fails);
      runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'memory.max', String(mebibytes * MiB));
      return Promise.resolve(Buffer.alloc(0));
    },
  );
const memory = (mebibytes: number) => ({ memory: bytes(mebibytes * MiB) });
const resize = (first: number, second: number, dryRun = false) =>
  resizePod(
    runtime.node,
    SANDBOX,
    {
      pod: {},
      containers: new Map([
        ['c0', memory(first)],
        ['c1', memory(second)],
      ]),
      volumes: new Map(),
    },
    { dryRun, deadline: Infinity },
  );

describe('the metrics of resizes', () => {
  test('resize metrics count requests by final state and direction', async () => {
    await update(150);
    await update(120);
    await update(120);
    await expect(update(-7)).rejects.toThrow();
    // 500,000 bytes of it cannot be reclaimed.
    await expect(
      updateContainer(runtime.node, containerUpdate(containerId(0), { memory_limit_in_bytes: 400_000n }), () =>
        Promise.resolve(Buffer.alloc(0)),
      ),
    ).rejects.toMatchObject({ reason: 'MEMORY_NOT_RECLAIMABLE' });
    expect(resizes()).toEqual({
      'Completed up': 1,
      'Completed down': 1,
      'Completed same': 1,
      'Infeasible unknown': 1,
      'Deferred down': 1,
    });
  });

  test('resize metrics count UpdatePodSandboxResources and ResizePod, but no dry run', async () => {
    const request = { pod_sandbox_id: SANDBOX, resources: { memory_limit_in_bytes: BigInt(400 * MiB) } };
    const asked = decode('UpdatePodSandboxResourcesRequest', encode('UpdatePodSandboxResourcesRequest', request));
    await updatePod(runtime.node, asked, () => Promise.resolve(Buffer.alloc(0)));
    expect(resizes()).toEqual({ 'Completed up': 1 });
    for (const index of [0, 1])
      runtime.node.registry.learnContainer({
        containerId: containerId(index),
        sandboxId: SANDBOX,
        name: `c${index}`,
      });
    await resize(110, 190, true);
    expect(resizes()).toEqual({ 'Completed up': 1 });
    await resize(110, 190);
    expect(resizes()).toEqual({ 'Completed up': 1, 'Completed both': 1 });
  });

  test('resize metrics measure the duration of steps and count rollbacks', async () => {
    await update(150);
    expect(counts('step_duration_seconds')).toEqual({ 'pod-memory': 1, runtime: 1 });
    expect(counts('undos_total')).toEqual({ undone: 0, failed: 0 });
    await expect(update(180, new Error('refused'))).rejects.toThrow('refused');
    expect(counts('undos_total')).toEqual({ undone: 1, failed: 0 });
    expect(runtime.read('memory.max')).toBe(String(350 * MiB));
  });

  test('resize metrics measure the duration of reclaim before a decrease, by its outcome', async () => {
    await update(50);
    expect(counts('reclaim_duration_seconds')).toMatchObject({ done: expect.any(Number) as number });
    expect(counts('oom_kills_total')).toEqual({ '': 0 });
  });
});
