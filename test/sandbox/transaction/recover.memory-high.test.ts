import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { isMarkedHigh, markedHigh, type PreviousHigh } from '../../../src/cgroups/memory-high.ts';
import { encode } from '../../../src/runtime/codec.ts';
import { recover } from '../../../src/sandbox/transaction/recover.ts';
import { type Bytes, type Limit, bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { FakeRuntime, SANDBOX, containerId } from '../../support/fake-runtime.ts';
import { mi } from '../../support/quantities/mebibytes.ts';

const CGROUP = `/kubepods/pod1/${containerId(0)}`;

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(String(1024 * MiB), [1024 * MiB]);
  runtime.applyUpdates();
  runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
});
afterEach(() => runtime.close());

/** A decrease to 512 MiB during which the process was killed, with memory.high as it is found afterwards. */
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
