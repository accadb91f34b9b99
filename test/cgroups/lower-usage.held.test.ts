import { describe, expect, test } from 'vitest';
import { type HeldUsage, lowerUsage } from '../../src/cgroups/lower-usage.ts';
import { markedHigh, restoreMarkedHigh } from '../../src/cgroups/memory-high.ts';
import type { Bytes, Limit } from '../../src/core/quantities/numbers.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { FakeMemory } from '../support/fake-memory.ts';
import { mi } from '../support/quantities/mebibytes.ts';

const CGROUP = '/kubepods/pod1/c1';

/** Holds usage below 64 MiB while `hold` runs. */
async function holding(memory: FakeMemory, hold: (held: HeldUsage) => Promise<void>): Promise<number> {
  let freed = 0;
  await lowerUsage(memory, CGROUP, {
    target: mi(64),
    deadline: performance.now() + 600_000,
    lower: hold,
    onReclaimed: (amount) => (freed += amount),
  });
  return freed;
}

describe('usage that is held', () => {
  test('a look at held usage reports it, and changes nothing while unreclaimable memory does not grow', async () => {
    const memory = new FakeMemory(20 * MiB, 100 * MiB);
    const freed = await holding(memory, async (held) => {
      const before = [...memory.highs];
      expect(await held.look()).toMatchObject({ isHeld: true, use: { current: 56 * MiB, unreclaimable: 20 * MiB } });
      expect(memory.highs).toEqual(before);
    });
    expect([freed, memory.high]).toEqual([64 * MiB, 'max']);
  });

  test('while usage is held, memory.high rises with unreclaimable memory, is marked, and is restored later', async () => {
    const memory = new FakeMemory(20 * MiB, 100 * MiB);
    memory.high = mi(150);
    await holding(memory, async (held) => {
      memory.anon = 58 * MiB;
      memory.cache = 0;
      await held.look();
      expect(memory.high).toBe(markedHigh(mi(61)));
      memory.anon = 20 * MiB;
      await held.look();
      expect(memory.high).toBe(markedHigh(mi(61)));
    });
    expect(memory.high).toBe(150 * MiB);
  });

  test('while usage is held, memory.high does not rise above the value to restore', async () => {
    const memory = new FakeMemory(20 * MiB, 100 * MiB);
    memory.high = mi(59);
    await holding(memory, async (held) => {
      memory.anon = 60 * MiB;
      memory.cache = 0;
      await held.look();
      expect(memory.high).toBe(markedHigh(mi(59)));
    });
    expect(memory.high).toBe(59 * MiB);
  });

  test.each<[Limit<Bytes>, boolean]>([
    ['max', false],
    [mi(64), false],
    [mi(40), true],
  ])(
    'keeps a memory.high of %s that another program sets while usage is held (still held: %s)',
    async (value, isHeld) => {
      const memory = new FakeMemory(20 * MiB, 100 * MiB);
      await holding(memory, async (held) => {
        memory.high = value;
        memory.anon = 58 * MiB;
        memory.cache = 0;
        expect((await held.look()).isHeld).toBe(isHeld);
        expect(memory.high).toBe(value);
      });
      expect(memory.high).toBe(value);
    },
  );

  test('counts the reclaimed bytes when memory can be reclaimed only in part', async () => {
    const memory = new FakeMemory(20 * MiB, 30 * MiB, 12 * MiB);
    expect(await holding(memory, () => Promise.resolve())).toBe(62 * MiB - memory.current);
  });
});

describe('a memory.high lowered by an earlier process', () => {
  test.each<[string, Limit<Bytes>, Limit<Bytes>, Limit<Bytes>]>([
    ['is restored', markedHigh(mi(56)), 'max', 'max'],
    ['is left where another program has set it', mi(56), 'max', mi(56)],
    ['is left where it is higher by now', markedHigh(mi(56)), mi(40), markedHigh(mi(56))],
  ])('a memory.high lowered by an earlier process %s', async (_, found, memoryHigh, after) => {
    const memory = new FakeMemory(0, 0);
    memory.high = found;
    await restoreMarkedHigh(memory, { cgroup: CGROUP, memoryHigh });
    expect(memory.high).toBe(after);
  });

  test('ignores the lowered memory.high of a removed cgroup', async () => {
    const memory = new FakeMemory(0, 0);
    memory.isGone = true;
    await expect(restoreMarkedHigh(memory, { cgroup: CGROUP, memoryHigh: 'max' })).resolves.toBeUndefined();
  });
});
