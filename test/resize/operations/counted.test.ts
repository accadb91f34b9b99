import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { directionOf } from '../../../src/resize/model/direction.ts';
import { decode, encode } from '../../../src/runtime/index.ts';
import { bytes, microseconds } from '../../../src/core/quantities/index.ts';
import { FakeRuntime, SANDBOX, containerId, containerUpdate } from '../../support/fake-runtime.ts';
import { resizePod } from '../../../src/resize/operations/resize-pod.ts';
import { updateContainer } from '../../../src/resize/operations/update-container.ts';
import { updatePod } from '../../../src/resize/operations/update-pod.ts';

/** What Prometheus is told of resizes. */

const MiB = 1024 * 1024;
let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.applyUpdates();
  runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
});
afterEach(() => runtime.close());

const resizes = (): object => runtime.counted.snapshot().resizes;
/** The counts of a family that has some, by label. */
function counts(name: string): Record<string, number> {
  const family = runtime.counted.families.find(({ description }) => description.name === `cri_resize_shim_${name}`);
  const series = [...(family?.series() ?? [])];
  return Object.fromEntries(series.map((one) => [one.labels.join(' '), one.kind === 'number' ? one.value : one.count]));
}

const update = (mebibytes: number, fails?: Error) =>
  updateContainer(
    runtime.context,
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
    runtime.context,
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

describe('requests to resize', () => {
  test('are counted by how they ended, and where they were to go', async () => {
    await update(150);
    await update(120);
    await update(120);
    await expect(update(-7)).rejects.toThrow();
    // 500,000 bytes of it cannot be reclaimed.
    await expect(
      updateContainer(runtime.context, containerUpdate(containerId(0), { memory_limit_in_bytes: 400_000n }), () =>
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

  test('whoever asks: by UpdatePodSandboxResources and ResizePod too; a dry run is none', async () => {
    const request = { pod_sandbox_id: SANDBOX, resources: { memory_limit_in_bytes: BigInt(400 * MiB) } };
    const asked = decode('UpdatePodSandboxResourcesRequest', encode('UpdatePodSandboxResourcesRequest', request));
    await updatePod(runtime.context, asked, () => Promise.resolve(Buffer.alloc(0)));
    expect(resizes()).toEqual({ 'Completed up': 1 });
    for (const index of [0, 1])
      runtime.context.registry.learnContainer({
        containerId: containerId(index),
        sandboxId: SANDBOX,
        name: `c${index}`,
      });
    await resize(110, 190, true);
    expect(resizes()).toEqual({ 'Completed up': 1 });
    await resize(110, 190);
    expect(resizes()).toEqual({ 'Completed up': 1, 'Completed both': 1 });
  });

  test('their steps are timed, and undoing is counted', async () => {
    await update(150);
    expect(counts('step_duration_seconds')).toEqual({ 'pod-memory': 1, runtime: 1 });
    expect(counts('undos_total')).toEqual({ undone: 0, failed: 0 });
    await expect(update(180, new Error('refused'))).rejects.toThrow('refused');
    expect(counts('undos_total')).toEqual({ undone: 1, failed: 0 });
    expect(runtime.read('memory.max')).toBe(String(350 * MiB));
  });

  test('memory that is reclaimed before a limit is lowered is timed by how that ended', async () => {
    await update(50);
    expect(counts('reclaim_duration_seconds')).toMatchObject({ done: expect.any(Number) as number });
    expect(counts('oom_kills_total')).toEqual({ '': 0 });
  });
});

describe('the direction', () => {
  const cpu = (quota: number | 'max', period = 100_000) => ({
    cpu: { quota: quota === 'max' ? quota : microseconds(quota), period: microseconds(period) },
  });
  const containers = (limits: object) => ({ containers: new Map([['a', limits]]) });
  const volumes = (size: number) => ({ volumes: new Map([['v', bytes(size)]]) });

  test.each([
    ['up', { pod: memory(2) }, { pod: memory(1) }],
    ['up', { pod: { memory: 'max' as const } }, { pod: memory(1) }],
    ['down', containers(cpu(5000)), containers(cpu(10_000))],
    ['same', containers(cpu(5000, 50_000)), containers(cpu(10_000, 100_000))],
    ['same', containers(cpu('max', 50_000)), containers(cpu('max'))],
    ['up', containers(cpu('max')), containers(cpu(10_000))],
    ['both', { pod: memory(2), ...volumes(1) }, { pod: memory(1), ...volumes(2) }],
    ['both', containers({ ...memory(1), ...cpu(2000) }), containers({ ...memory(2), ...cpu(1000) })],
    ['down', volumes(1), volumes(2)],
    ['same', {}, { pod: memory(1) }],
    ['same', containers(memory(5)), {}],
    ['same', volumes(1), {}],
  ])('%s: to %j from %j', (direction, to, from) => {
    expect(directionOf(to, from)).toBe(direction);
  });
});
