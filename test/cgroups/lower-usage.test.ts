import { beforeEach, describe, expect, test } from 'vitest';
import type { LowerUsageOptions, LowerUsageResult } from '../../src/cgroups/lower-usage.ts';
import { type Bytes, type Limit, bytes } from '../../src/core/quantities/numbers.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { FakeMemory } from '../support/fake-memory.ts';
import { CGROUP, HELD, inVirtualTime, reclaimTo, soon } from '../support/lower-usage.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

describe('lowerUsage', () => {
  test('reclaims page cache in steps, lowers memory.high with usage, and restores it', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    const result = await reclaimTo(memory, 64 * MiB);
    expect(memory.current).toBe(56 * MiB);
    expect(result).toMatchObject({ before: { current: 240 * MiB }, reached: { current: 56 * MiB }, oomKills: 0 });
    expect(result.reclaims).toBe(memory.asked.length);
    expect(memory.asked.length).toBeGreaterThan(2);
    expect(Math.max(...memory.asked)).toBeLessThan(184 * MiB);
    const lowered = memory.highs.slice(0, -1).map(Number);
    expect(lowered).toEqual([...lowered].sort((a, b) => b - a));
    expect(lowered.at(-1)).toBe(HELD);
    expect(memory.highs.at(-1)).toBe('max');
    expect(memory.high).toBe('max');
  });

  test('keeps usage below the limit by memory.high while the limit is set', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    const atLower: unknown[] = [];
    await reclaimTo(memory, 64 * MiB, {
      lower: () => Promise.resolve(void atLower.push(memory.high, memory.current)),
    });
    expect(atLower).toEqual([HELD, 56 * MiB]);
    expect(memory.high).toBe('max');
  });

  test('KEP-2570: keeps a memory.high that is set with the limit, even if it equals the temporary value', async () => {
    for (const set of [bytes(60 * MiB), bytes(HELD)]) {
      const memory = new FakeMemory(40 * MiB, 200 * MiB);
      memory.high = bytes(200 * MiB);
      const lower = (): Promise<void> => Promise.resolve(void (memory.high = set));
      await reclaimTo(memory, 64 * MiB, { lower, newHigh: set });
      expect(memory.high).toBe(set);
      const failing = reclaimTo(memory, 50 * MiB, { lower: () => Promise.reject(new Error('refused')), newHigh: set });
      await expect(failing).rejects.toThrow('refused');
      expect(memory.high).toBe(set);
    }
  });

  test('systemd: lowers memory.high again when it is reset during a reclaim, as systemd does when a unit changes', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    let isLifted = false;
    const atLower: unknown[] = [];
    memory.meanwhile = () => {
      if (memory.high !== HELD || isLifted) return;
      isLifted = true;
      memory.high = 'max';
    };
    await reclaimTo(memory, 64 * MiB, {
      lower: () => Promise.resolve(void atLower.push(memory.high, memory.current)),
    });
    expect(isLifted).toBe(true);
    expect(atLower).toEqual([HELD, 56 * MiB]);
    expect(memory.high).toBe('max');
  });

  test('lowers memory.high again when it was reset during the write', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    let resets = 0;
    memory.afterHigh = (value) => {
      if (value !== 'max' && resets < 3) {
        resets += 1;
        memory.high = 'max';
      }
      return Promise.resolve();
    };
    const atLower: unknown[] = [];
    await reclaimTo(memory, 64 * MiB, {
      lower: () => Promise.resolve(void atLower.push(memory.high, memory.current)),
    });
    expect([resets, atLower, memory.high]).toEqual([3, [HELD, 56 * MiB], 'max']);
  });

  test('keeps a memory.high that another process sets during the restore', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    memory.afterHigh = (value) => {
      if (value === 'max') memory.high = bytes(100 * MiB);
      return Promise.resolve();
    };
    await reclaimTo(memory, 64 * MiB);
    expect(memory.high).toBe(100 * MiB);
  });

  test('sets memory.high without a reclaim when usage is already below the target', async () => {
    const memory = new FakeMemory(10 * MiB, 10 * MiB);
    await reclaimTo(memory, 64 * MiB);
    expect(memory.asked).toEqual([]);
    expect(memory.highs).toEqual([HELD, 'max']);
  });

  test('does not change a memory.high that is lower than needed', async () => {
    const memory = new FakeMemory(10 * MiB, 20 * MiB);
    memory.high = bytes(32 * MiB);
    const reported: Limit<Bytes>[] = [];
    await reclaimTo(memory, 64 * MiB, { onHigh: (high) => Promise.resolve(void reported.push(high)) });
    expect(memory.highs).toEqual([]);
    expect(reported).toEqual([]);
  });

  test('reclaims in steps by memory.high on kernels without memory.reclaim', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    memory.hasReclaim = false;
    memory.high = bytes(250 * MiB);
    expect(await reclaimTo(memory, 64 * MiB)).toMatchObject({ reclaims: 0 });
    expect(memory.current).toBe(HELD);
    expect(memory.highs.length).toBeGreaterThan(4);
    expect(memory.high).toBe(250 * MiB);
  });

  test('succeeds below the target without the full margin when the rest cannot be reclaimed', async () => {
    const memory = new FakeMemory(20 * MiB, 100 * MiB, 40 * MiB);
    const result = await reclaimTo(memory, 64 * MiB);
    expect(result.reached.current).toBe(60 * MiB);
    expect(memory.high).toBe('max');
  });

  test('continues after EAGAIN until pages can be reclaimed', async () => {
    const memory = new FakeMemory(20 * MiB, 10 * MiB, 100 * MiB);
    let looks = 0;
    memory.meanwhile = () => {
      looks += 1;
      if (looks < 5) return;
      memory.cache += memory.stuck;
      memory.stuck = 0;
    };
    expect((await reclaimTo(memory, 64 * MiB)).reached.current).toBeLessThanOrEqual(56 * MiB);
  });

  test('succeeds after the deadline only if usage is already below the target', async () => {
    const memory = new FakeMemory(10 * MiB, 50 * MiB);
    expect(await reclaimTo(memory, 64 * MiB, { deadline: soon(-1) })).toMatchObject({ reclaims: 0 });
    memory.cache = 60 * MiB;
    await expect(reclaimTo(memory, 64 * MiB, { deadline: soon(-1) })).rejects.toMatchObject({
      reason: 'RECLAIM_TIMEOUT',
    });
    expect(memory.highs).toEqual([]);
  });

  test('returns the number of OOM kills during the call', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    memory.oomKills = 3;
    expect(
      await reclaimTo(memory, 64 * MiB, { lower: () => Promise.resolve(void (memory.oomKills += 2)) }),
    ).toMatchObject({
      oomKills: 2,
    });
  });
});

describe('unreclaimable memory', () => {
  test.each([64 * MiB, 80 * MiB])(
    'unreclaimable memory of %d bytes, at or above the target, is rejected with both figures and no change',
    async (anon) => {
      const memory = new FakeMemory(anon, 100 * MiB);
      await expect(reclaimTo(memory, 64 * MiB)).rejects.toMatchObject({
        code: 9,
        reason: 'MEMORY_NOT_RECLAIMABLE',
        context: { file: `${CGROUP}/memory.current`, asked: String(64 * MiB), found: String(anon) },
      });
      expect(memory.highs).toEqual([]);
      expect(memory.asked).toEqual([]);
    },
  );

  test('rejects the target when unreclaimable memory grows above it during the reclaim, and restores memory.high', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    memory.high = bytes(300 * MiB);
    memory.meanwhile = () => (memory.anon += 10 * MiB);
    await expect(reclaimTo(memory, 64 * MiB)).rejects.toMatchObject({ reason: 'MEMORY_NOT_RECLAIMABLE' });
    expect(memory.anon).toBe(70 * MiB);
    expect(memory.high).toBe(300 * MiB);
  });
});

describe('a lower swap limit', () => {
  test('rejects a target below memory and swap usage together when the swap limit is lowered, though usage is below it', async () => {
    const memory = new FakeMemory(30 * MiB, 0);
    memory.swapped = 40 * MiB;
    const lower = (): Promise<void> => Promise.reject(new Error('the limit must not be set'));
    memory.swapMax = 40 * MiB;
    const swapAfter = new Map([[CGROUP, bytes(0)]]);
    await expect(reclaimTo(memory, 64 * MiB, { swapAfter, lower })).rejects.toMatchObject({
      reason: 'MEMORY_NOT_RECLAIMABLE',
      context: { found: String(70 * MiB) },
    });
    expect((await reclaimTo(memory, 64 * MiB)).reached.current).toBe(30 * MiB);
  });

  test('a look at held usage counts swapped memory that a lower swap limit brings back', async () => {
    const memory = new FakeMemory(30 * MiB, 0);
    memory.swapMax = 40 * MiB;
    const lower: LowerUsageOptions['lower'] = async (held) => {
      memory.swapped = 20 * MiB;
      expect((await held.look()).use.unreclaimable).toBe(50 * MiB);
    };
    await reclaimTo(memory, 64 * MiB, { swapAfter: new Map([[CGROUP, bytes(0)]]), lower });
  });
});

describe('a target slightly above unreclaimable memory', () => {
  let clock: VirtualClock;
  beforeEach(() => (clock = new VirtualClock()));
  const reclaim = (
    memory: FakeMemory,
    options: Partial<Pick<LowerUsageOptions, 'lower'>> = {},
    milliseconds = 30_000,
  ): Promise<LowerUsageResult<void>> =>
    inVirtualTime(clock, reclaimTo(memory, 64 * MiB, { clock, deadline: clock.now() + milliseconds, ...options }));
  /** Lets unreclaimable memory grow by `perSecond` MiB per second. */
  const grow = (memory: FakeMemory, perSecond: number, milliseconds = Infinity): void => {
    const first = memory.anon;
    memory.meanwhile = () => {
      const passed = Math.min(clock.passed, milliseconds);
      memory.anon = Math.max(memory.anon, first + Math.floor((perSecond * MiB * passed) / 1000));
    };
  };

  test('accepts a target slightly above unreclaimable memory when the memory does not grow', async () => {
    const memory = new FakeMemory(62 * MiB, 100 * MiB);
    expect((await reclaim(memory)).reached.current).toBeLessThan(64 * MiB);
  });

  test('KEP-1287: a process that allocates fast keeps the old limit when its unreclaimable memory grows toward the target', async () => {
    const memory = new FakeMemory(58 * MiB, 100 * MiB);
    grow(memory, 10);
    const lowerings: number[] = [];
    const lower = (): Promise<void> => Promise.resolve(void lowerings.push(memory.anon));
    await expect(reclaim(memory, { lower })).rejects.toMatchObject({ reason: 'MEMORY_NOT_RECLAIMABLE' });
    expect(lowerings).toEqual([]);
    expect(memory.high).toBe('max');
  });

  test('does not accept a target in time when growing memory fits into swap but is not swapped out yet', async () => {
    const memory = new FakeMemory(58 * MiB, 2 * MiB);
    memory.swapMax = 30 * MiB;
    grow(memory, 10);
    const lower = (): Promise<void> => Promise.reject(new Error('the limit must not be set'));
    await expect(reclaim(memory, { lower }, 300)).rejects.toMatchObject({ reason: 'RECLAIM_TIMEOUT' });
  });

  test('accepts a target slightly above unreclaimable memory when the memory has stopped growing', async () => {
    const memory = new FakeMemory(58 * MiB, 100 * MiB);
    grow(memory, 10, 400);
    let loweredAfter = 0;
    const lower = (): Promise<void> => Promise.resolve(void (loweredAfter = clock.passed));
    await reclaim(memory, { lower });
    expect(loweredAfter).toBeGreaterThan(500);
    expect(memory.anon).toBe(62 * MiB);
  });

  test('rejects a target with DEADLINE_EXCEEDED when there is no time to observe the growth of unreclaimable memory', async () => {
    const memory = new FakeMemory(62 * MiB, 0);
    await expect(reclaim(memory, {}, 50)).rejects.toMatchObject({ reason: 'RECLAIM_TIMEOUT' });
    expect(memory.high).toBe('max');
  });
});
