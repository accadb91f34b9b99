import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { encode } from '../../../src/runtime/codec.ts';
import { recover } from '../../../src/sandbox/transaction/recover.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { microseconds } from '../../../src/core/quantities/numbers.ts';
import { FakeRuntime, SANDBOX, containerId } from '../../support/fake-runtime.ts';
import { interrupted } from '../../support/resize/interrupted.ts';
import type { Step } from '../../../src/sandbox/plan/step.ts';
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
const { begin, has, uses, found, journal } = interrupted(() => runtime);

describe('a resize that began after a failed rollback', () => {
  // Both change the pod limit.
  const lower: readonly Step[] = [
    { kind: 'container', id: containerId(1), memory: { from: mi(200), to: mi(50) } },
    { kind: 'pod-memory', from: mi(300), to: mi(150) },
  ];
  const raise: readonly Step[] = [
    { kind: 'pod-memory', from: mi(150), to: mi(250) },
    { kind: 'container', id: containerId(0), memory: { from: mi(100), to: mi(200) } },
  ];

  test.each([
    ['before its first step', 150, 100, 50],
    ['after the pod step', 250, 100, 50],
    ['after all steps', 250, 200, 50],
  ])(
    'KEP-1287: a resize that stopped %s is rolled back together with an earlier one whose rollback failed',
    async (_when, podMemory, ...containers) => {
      await begin(lower);
      await begin(raise);
      has(podMemory, ...containers);
      await recover(runtime.node);
      expect(found()).toEqual([300, 100, 200]);
      expect(journal()).toEqual([]);
    },
  );

  test('KEP-1287: a lowered container stays lower while a raise by a later resize could not be rolled back', async () => {
    await begin(lower);
    await begin(raise);
    has(250, 200, 50);
    runtime.applyUpdates((id) => id === containerId(0));
    await recover(runtime.node);
    expect(found()).toEqual([250, 200, 50]);
    expect(journal()).toHaveLength(1);
    runtime.applyUpdates();
    await recover(runtime.node);
    expect(found()).toEqual([300, 100, 200]);
    expect(journal()).toEqual([]);
  });

  test('KEP-1287: a lowered container stays lower while the pod uses more than the limit between two resizes', async () => {
    await begin(lower);
    await begin(raise);
    has(250, 200, 50);
    uses('/kubepods/pod1', 200 * MiB);
    await recover(runtime.node);
    expect(found()).toEqual([250, 100, 50]);
    expect(journal()).toHaveLength(1);
    uses('/kubepods/pod1', 0);
    await recover(runtime.node);
    expect(found()).toEqual([300, 100, 200]);
    expect(journal()).toEqual([]);
  });
});

describe('a transfer between containers', () => {
  const transfer: readonly Step[] = [
    {
      kind: 'container',
      id: containerId(1),
      memory: { from: mi(200), to: mi(50) },
      cpu: { from: cpu(20_000), to: cpu(5000) },
    },
    { kind: 'container', id: containerId(0), memory: { from: mi(100), to: mi(250) } },
  ];

  test('KEP-1287: a lowered container stays lower while the raise of another container could not be rolled back', async () => {
    await (await begin(transfer)).undoing();
    has(300, 250, 50);
    runtime.applyUpdates((id) => id === containerId(0));
    await recover(runtime.node);
    expect(found()).toEqual([300, 250, 50]);
    expect(journal()).toHaveLength(1);
    runtime.applyUpdates();
    await recover(runtime.node);
    expect(found()).toEqual([300, 100, 200]);
    expect(journal()).toEqual([]);
  });
});
