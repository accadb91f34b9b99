import fc from 'fast-check';
import { beforeEach, describe, expect, test } from 'vitest';
import { isCgroupVanished } from '../../src/cgroups/file.ts';
import type { HeldUsage, LowerUsageOptions, LowerUsageResult } from '../../src/cgroups/lower-usage.ts';
import { lowerUsage } from '../../src/cgroups/lower-usage.ts';
import { markedHigh, restoreMarkedHigh } from '../../src/cgroups/memory-high.ts';
import { hasEnoughMargin } from '../../src/cgroups/reclaim-pace.ts';
import type { ErrorContext } from '../../src/core/errors.ts';
import { ShimError } from '../../src/core/errors.ts';
import type { Bytes, Limit } from '../../src/core/quantities/numbers.ts';
import { bytes } from '../../src/core/quantities/numbers.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { FakeMemory, writeRefused } from '../support/fake-memory.ts';
import { CGROUP, HELD, inVirtualTime, never, reclaimTo, reclaimWithin, soon } from '../support/lower-usage.ts';
import { mi } from '../support/quantities/mebibytes.ts';

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
  test('rejects a target below the sum of memory and swap usage if the swap limit is lowered, even if memory usage is below the target', async () => {
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
  let clock: FakeClock;
  beforeEach(() => (clock = new FakeClock()));
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

describe('the deadline of lowerUsage', () => {
  test('fails with DEADLINE_EXCEEDED and both figures when page cache grows as fast as it is reclaimed', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    memory.meanwhile = () => (memory.cache = 200 * MiB);
    const [result] = await reclaimWithin(300, 64 * MiB, [memory]);
    expect(result).toMatchObject({
      status: 'rejected',
      reason: {
        code: 4,
        reason: 'RECLAIM_TIMEOUT',
        context: { asked: String(64 * MiB), found: String(240 * MiB) },
      },
    });
    expect(memory.high).toBe('max');
    // The attempts have pauses between them.
    expect(memory.asked.length).toBeLessThan(30);
  });

  test('the deadline ends a write to memory.reclaim that hangs, and other cgroups are reclaimed concurrently', async () => {
    const [stuck, other] = [new FakeMemory(40 * MiB, 200 * MiB), new FakeMemory(40 * MiB, 200 * MiB)];
    let release = (): void => undefined;
    stuck.beforeReclaim = () => new Promise((resolve) => (release = resolve));
    const refused = expect(reclaimTo(stuck, 64 * MiB, { deadline: soon(200) })).rejects.toMatchObject({
      reason: 'RECLAIM_TIMEOUT',
    });
    await reclaimTo(other, 64 * MiB);
    await refused;
    expect(stuck.high).toBe('max');
    release();
  });

  test('KEP-1287: reclaim does not starve the thread pool: two writes run at a time, and the deadline ends the wait of the others', async () => {
    let running = 0;
    let most = 0;
    const releases: (() => void)[] = [];
    const memories = Array.from({ length: 4 }, () => new FakeMemory(40 * MiB, 200 * MiB));
    for (const memory of memories)
      memory.beforeReclaim = async () => {
        most = Math.max(most, (running += 1));
        await new Promise<void>((resolve) => releases.push(resolve));
        running -= 1;
      };
    const results = await reclaimWithin(200, 64 * MiB, memories);
    expect(
      results.map((result) => result.status === 'rejected' && (result.reason as { reason: string }).reason),
    ).toEqual(Array(4).fill('RECLAIM_TIMEOUT'));
    expect(most).toBe(2);
    expect(memories.map((memory) => memory.asked.length)).toEqual([1, 1, 0, 0]);
    expect(memories.map((memory) => memory.high)).toEqual(Array(4).fill('max'));
    for (const release of releases) release();
    // The slots are free again.
    await reclaimTo(new FakeMemory(40 * MiB, 200 * MiB), 64 * MiB);
  });

  test.each([true, false])(
    'the deadline ends a write to memory.high that hangs (after its effect: %s), and the value is restored',
    async (before) => {
      const memory = new FakeMemory(40 * MiB, 200 * MiB);
      let release = (): void => undefined;
      const hang = (value: Limit<Bytes>): Promise<void> =>
        value === 'max' ? Promise.resolve() : new Promise((resolve) => (release = resolve));
      if (before) memory.afterHigh = hang;
      else memory.beforeHigh = hang;
      const [result] = await reclaimWithin(100, 64 * MiB, [memory]);
      expect(result).toMatchObject({ status: 'rejected', reason: { reason: 'RECLAIM_TIMEOUT' } });
      expect(memory.high).toBe('max');
      release();
      await new Promise((resolve) => setImmediate(resolve));
      expect(memory.high).toBe('max');
      expect(memory.highs.at(-1)).toBe('max');
    },
  );
});

describe('an abort of lowerUsage', () => {
  test('an abort of lowerUsage rejects with its reason, and restores memory.high', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    const abort = new AbortController();
    memory.beforeReclaim = () => {
      abort.abort(new Error('superseded'));
      return never();
    };
    await expect(reclaimTo(memory, 64 * MiB, { signal: abort.signal })).rejects.toThrow('superseded');
    expect(memory.highs).toEqual([240 * MiB - 64 * 1024, 'max']);
  });

  test('an abort before the start of lowerUsage prevents any change', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    await expect(reclaimTo(memory, 64 * MiB, { signal: AbortSignal.abort(new Error('gone')) })).rejects.toThrow('gone');
    expect(memory.highs).toEqual([]);
  });
});

describe('a cgroup that is removed', () => {
  test.each(['while it is reclaimed', 'while its limit is set'])(
    'a cgroup that is removed %s ends lowerUsage',
    async (when) => {
      const memory = new FakeMemory(40 * MiB, 200 * MiB);
      const go = (): Promise<void> => {
        memory.isGone = true;
        return Promise.resolve();
      };
      if (when === 'while it is reclaimed') {
        memory.beforeReclaim = go;
        await expect(reclaimTo(memory, 64 * MiB)).rejects.toSatisfy(isCgroupVanished);
      } else {
        expect(await reclaimTo(memory, 64 * MiB, { lower: go })).toMatchObject({ oomKills: 0 });
      }
    },
  );
});

describe('usage and memory.high that are held', () => {
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
      ['stays if another program has set it', mi(56), 'max', mi(56)],
      ['stays if it is above the recorded value', markedHigh(mi(56)), mi(40), markedHigh(mi(56))],
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
});

describe('memory.high', () => {
  test('reports memory.high before a change, and does not change it if the caller cannot record it', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    memory.high = bytes(300 * MiB);
    const reported: unknown[] = [];
    await reclaimTo(memory, 64 * MiB, {
      onHigh: (previous) => Promise.resolve(void reported.push(previous, memory.high)),
    });
    expect(reported).toEqual([300 * MiB, 300 * MiB]);
    const written = memory.highs.length;
    memory.cache = 200 * MiB;
    await expect(reclaimTo(memory, 64 * MiB, { onHigh: () => Promise.reject(new Error('disk full')) })).rejects.toThrow(
      'disk full',
    );
    expect(memory.highs.length).toBe(written);
    expect(memory.asked.length).toBeGreaterThan(0);
  });

  test('restores memory.high when the limit cannot be set, and fails with the error of the limit', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    await expect(reclaimTo(memory, 64 * MiB, { lower: () => Promise.reject(new Error('runc')) })).rejects.toThrow(
      'runc',
    );
    expect(memory.high).toBe('max');
  });

  test('does not restore memory.high when another process has written it while the limit was set', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    await reclaimTo(memory, 64 * MiB, { lower: () => Promise.resolve(void (memory.high = bytes(50 * MiB))) });
    expect(memory.high).toBe(50 * MiB);
  });

  test('restores memory.high to the value that another process wrote during the reclaim, and reports that value', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    const reported: Limit<Bytes>[] = [];
    memory.meanwhile = () => {
      if (memory.asked.length === 2) memory.high = bytes(500 * MiB);
    };
    await reclaimTo(memory, 64 * MiB, { onHigh: (previous) => Promise.resolve(void reported.push(previous)) });
    expect(reported).toEqual(['max', 500 * MiB]);
    expect(memory.high).toBe(500 * MiB);
  });

  test('fails with the error of the write when memory.high cannot be lowered', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    memory.beforeHigh = () => Promise.reject(writeRefused());
    await expect(reclaimTo(memory, 64 * MiB)).rejects.toMatchObject({ reason: 'CGROUP_WRITE_FAILED' });
    expect(memory.high).toBe('max');
  });

  test('fails with UNDO_FAILED, the value and both errors when memory.high cannot be restored', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    memory.beforeHigh = (value) => (value === 'max' ? Promise.reject(writeRefused()) : Promise.resolve());
    await expect(reclaimTo(memory, 64 * MiB, { lower: () => Promise.reject(new Error('runc')) })).rejects.toMatchObject(
      {
        reason: 'UNDO_FAILED',
        message: expect.stringMatching(/runc.*restored to max.*refused/) as unknown,
        context: { asked: 'max' },
      },
    );
  });
});

const megabytes = (max: number) => fc.integer({ min: 0, max }).map((amount) => amount * MiB);

/** An event between two reads of the cgroup. */
const event = fc.oneof(
  { weight: 5, arbitrary: fc.record({ kind: fc.constant('cache' as const), by: megabytes(60) }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('anon' as const), by: megabytes(20) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('stick' as const), by: megabytes(60) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('loosen' as const), by: megabytes(60) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('free' as const), by: megabytes(40) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constantFrom('refuse reclaim' as const, 'refuse high' as const, 'abort' as const, 'go' as const),
      by: fc.constant(0),
    }),
  },
);

const scenario = fc.record({
  anon: megabytes(100),
  cache: megabytes(300),
  stuck: megabytes(100),
  target: fc.integer({ min: 1, max: 200 }).map((amount) => amount * MiB),
  high: fc.oneof(
    fc.constant('max' as const),
    fc.integer({ min: 1, max: 400 }).map((amount) => bytes(amount * MiB)),
  ),
  hasReclaim: fc.boolean(),
  events: fc.array(event, { maxLength: 8 }),
});

test('KEP-1287: after any events, memory.high has its old value, and usage is below the target or an error has the reason', async () => {
  const seen = new Map<string, number>();
  await fc.assert(
    fc.asyncProperty(scenario, async ({ anon, cache, stuck, target, high, hasReclaim, events }) => {
      const memory = new FakeMemory(anon, cache, stuck);
      Object.assign(memory, { high, hasReclaim });
      const abort = new AbortController();
      const queue = [...events];
      memory.meanwhile = () => {
        const { kind, by } = queue.shift() ?? { kind: 'none', by: 0 };
        if (kind === 'cache') memory.cache += by;
        if (kind === 'anon') memory.anon += by;
        if (kind === 'free') memory.anon = Math.max(0, memory.anon - by);
        if (kind === 'stick') {
          const amount = Math.min(by, memory.cache);
          memory.cache -= amount;
          memory.stuck += amount;
        }
        if (kind === 'loosen') {
          const amount = Math.min(by, memory.stuck);
          memory.stuck -= amount;
          memory.cache += amount;
        }
        if (kind === 'refuse reclaim') memory.beforeReclaim = () => Promise.reject(writeRefused());
        // Only for decreases: the kernel does not reject a value that it had before.
        if (kind === 'refuse high')
          memory.beforeHigh = (value) => (value === high ? Promise.resolve() : Promise.reject(writeRefused()));
        if (kind === 'abort') abort.abort(new Error('aborted'));
        if (kind === 'go') memory.isGone = true;
      };
      const reported: unknown[] = [];
      let atLower: { current: number; anon: number } | undefined;
      let figures: ErrorContext = {};
      const clock = new FakeClock();
      const lowered = lowerUsage(memory, '/c1', {
        target: bytes(target),
        deadline: clock.now() + 60,
        clock,
        signal: abort.signal,
        onHigh: (previous) => Promise.resolve(void reported.push(previous)),
        lower: () => {
          // No event has happened since the last read.
          atLower = { current: memory.current, anon: memory.anon };
          return Promise.resolve();
        },
      });
      const outcome = await inVirtualTime(clock, lowered).then(
        () => 'lowered',
        (error: unknown) => {
          if (isCgroupVanished(error)) return 'vanished';
          if (error instanceof ShimError) figures = error.context;
          return error instanceof ShimError ? error.reason : (error as Error).message;
        },
      );
      seen.set(outcome, (seen.get(outcome) ?? 0) + 1);
      if (!memory.isGone) expect(memory.high).toBe(high);
      // The previous value is reported once, and only if memory.high was written.
      expect(reported).toEqual(
        memory.highs.length > 0 || outcome === 'CGROUP_WRITE_FAILED' ? reported.slice(0, 1) : [],
      );
      expect(reported.every((value) => value === high)).toBe(true);
      expect(memory.highs.every((value) => value === high || high === 'max' || Number(value) < high)).toBe(true);
      if (atLower !== undefined) expect(atLower.current).toBeLessThan(target);
      if (outcome === 'MEMORY_NOT_RECLAIMABLE' || outcome === 'RECLAIM_TIMEOUT') {
        expect(figures.asked).toBe(String(target));
        // Below the target by so little that it was observed, and not for long enough.
        const isShort = outcome === 'RECLAIM_TIMEOUT' && !hasEnoughMargin(bytes(target), bytes(memory.anon));
        expect(Number(figures.found)).toBeGreaterThanOrEqual(isShort ? target * 0.875 : target);
      }
      expect(outcome === 'lowered').toBe(atLower !== undefined && !(memory.isGone && outcome !== 'lowered'));
    }),
    { numRuns: 400 },
  );
  // All possible outcomes occurred: otherwise the property proves less than its title says.
  const outcomes = [
    'lowered',
    'MEMORY_NOT_RECLAIMABLE',
    'RECLAIM_TIMEOUT',
    'CGROUP_WRITE_FAILED',
    'aborted',
    'vanished',
  ];
  expect([...seen.keys()].sort()).toEqual(outcomes.sort());
}, 900_000);
