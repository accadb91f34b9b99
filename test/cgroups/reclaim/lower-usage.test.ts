import { describe, expect, test } from 'vitest';
import {
  type LowerUsageResult,
  type LowerUsageOptions,
  isCgroupVanished,
  lowerUsage,
} from '../../../src/cgroups/index.ts';
import { type Limit, type Bytes, bytes } from '../../../src/core/quantities/index.ts';
import { FakeMemory, writeRefused } from '../../support/fake-memory.ts';

const MiB = 1024 * 1024;
const CGROUP = '/kubepods/pod1/c1';
/** The marked memory.high for a target of 64 MiB: an eighth of it below, and below a multiple of 256 KiB. */
const HELD = 56 * MiB - 64 * 1024;
const soon = (milliseconds: number): number => Date.now() + milliseconds;

const make = (
  memory: FakeMemory,
  target: number,
  options: Partial<LowerUsageOptions> = {},
): Promise<LowerUsageResult> =>
  lowerUsage(memory, CGROUP, { target: bytes(target), deadline: soon(30_000), ...options });

const never = (): Promise<never> => new Promise(() => undefined);

describe('room is made', () => {
  test('of page cache, in steps, with memory.high following use down, and put back as it was', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    const made = await make(memory, 64 * MiB);
    expect(memory.current).toBe(56 * MiB);
    expect(made).toMatchObject({ before: { current: 240 * MiB }, reached: { current: 56 * MiB }, oomKills: 0 });
    expect(made.reclaims).toBe(memory.asked.length);
    expect(memory.asked.length).toBeGreaterThan(2);
    expect(Math.max(...memory.asked)).toBeLessThan(184 * MiB);
    const lowered = memory.highs.slice(0, -1).map(Number);
    expect(lowered).toEqual([...lowered].sort((a, b) => b - a));
    expect(lowered.at(-1)).toBe(HELD);
    expect(memory.highs.at(-1)).toBe('max');
    expect(memory.high).toBe('max');
  });

  test('while the limit is set, memory.high holds use under it', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    const atLower: unknown[] = [];
    await make(memory, 64 * MiB, {
      lower: () => Promise.resolve(void atLower.push(memory.high, memory.current)),
    });
    expect(atLower).toEqual([HELD, 56 * MiB]);
    expect(memory.high).toBe('max');
  });

  test('and is lowered once more when it was lifted meanwhile, as systemd does to a unit that somebody changes', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    let isLifted = false;
    const atLower: unknown[] = [];
    memory.meanwhile = () => {
      if (memory.high !== HELD || isLifted) return;
      isLifted = true;
      memory.high = 'max';
    };
    await make(memory, 64 * MiB, {
      lower: () => Promise.resolve(void atLower.push(memory.high, memory.current)),
    });
    expect(isLifted).toBe(true);
    expect(atLower).toEqual([HELD, 56 * MiB]);
    expect(memory.high).toBe('max');
  });

  test('by nothing but memory.high when use is under the target already', async () => {
    const memory = new FakeMemory(10 * MiB, 10 * MiB);
    await make(memory, 64 * MiB);
    expect(memory.asked).toEqual([]);
    expect(memory.highs).toEqual([HELD, 'max']);
  });

  test('with a memory.high that is lower than needed left alone', async () => {
    const memory = new FakeMemory(10 * MiB, 20 * MiB);
    memory.high = bytes(32 * MiB);
    const told: Limit<Bytes>[] = [];
    await make(memory, 64 * MiB, { onHigh: (high) => Promise.resolve(void told.push(high)) });
    expect(memory.highs).toEqual([]);
    expect(told).toEqual([]);
  });

  test('on kernels without memory.reclaim by memory.high alone, in steps', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    memory.hasReclaim = false;
    memory.high = bytes(250 * MiB);
    expect(await make(memory, 64 * MiB)).toMatchObject({ reclaims: 0 });
    expect(memory.current).toBe(HELD);
    expect(memory.highs.length).toBeGreaterThan(4);
    expect(memory.high).toBe(250 * MiB);
  });

  test('under the target, if not by the whole margin, when the rest does not come free', async () => {
    const memory = new FakeMemory(20 * MiB, 100 * MiB, 40 * MiB);
    const made = await make(memory, 64 * MiB);
    expect(made.reached.current).toBe(60 * MiB);
    expect(memory.high).toBe('max');
  });

  test('when pages come free late: EAGAIN is no error', async () => {
    const memory = new FakeMemory(20 * MiB, 10 * MiB, 100 * MiB);
    let looks = 0;
    memory.meanwhile = () => {
      looks += 1;
      if (looks < 5) return;
      memory.cache += memory.stuck;
      memory.stuck = 0;
    };
    expect((await make(memory, 64 * MiB)).reached.current).toBeLessThanOrEqual(56 * MiB);
  });

  test('with time up before it began, only if use is under the target as it is', async () => {
    const memory = new FakeMemory(10 * MiB, 50 * MiB);
    expect(await make(memory, 64 * MiB, { deadline: soon(-1) })).toMatchObject({ reclaims: 0 });
    memory.cache = 60 * MiB;
    await expect(make(memory, 64 * MiB, { deadline: soon(-1) })).rejects.toMatchObject({ reason: 'RECLAIM_TIMEOUT' });
    expect(memory.highs).toEqual([]);
  });

  test('and kills of the OOM killer meanwhile are reported', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    memory.oomKills = 3;
    expect(await make(memory, 64 * MiB, { lower: () => Promise.resolve(void (memory.oomKills += 2)) })).toMatchObject({
      oomKills: 2,
    });
  });
});

describe('what cannot be reclaimed', () => {
  test.each([64 * MiB, 80 * MiB])(
    '%d bytes, at or above the target: refused with both figures, nothing changed',
    async (anon) => {
      const memory = new FakeMemory(anon, 100 * MiB);
      await expect(make(memory, 64 * MiB)).rejects.toMatchObject({
        code: 9,
        reason: 'MEMORY_NOT_RECLAIMABLE',
        context: { file: `${CGROUP}/memory.current`, asked: String(64 * MiB), found: String(anon) },
      });
      expect(memory.highs).toEqual([]);
      expect(memory.asked).toEqual([]);
    },
  );

  test('and grows on the way: refused as soon as it passes the target, memory.high as it was', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    memory.high = bytes(300 * MiB);
    memory.meanwhile = () => (memory.anon += 10 * MiB);
    await expect(make(memory, 64 * MiB)).rejects.toMatchObject({ reason: 'MEMORY_NOT_RECLAIMABLE' });
    expect(memory.anon).toBe(70 * MiB);
    expect(memory.high).toBe(300 * MiB);
  });
});

describe('hardly room beside what cannot be reclaimed', () => {
  /** Grows so many MiB in a second, for so many milliseconds. */
  const grow = (memory: FakeMemory, perSecond: number, milliseconds = Infinity): void => {
    const [start, first] = [performance.now(), memory.anon];
    memory.meanwhile = () => {
      const passed = Math.min(performance.now() - start, milliseconds);
      memory.anon = Math.max(memory.anon, first + Math.floor((perSecond * MiB * passed) / 1000));
    };
  };

  test('is enough for what does not grow', async () => {
    const memory = new FakeMemory(62 * MiB, 100 * MiB);
    expect((await make(memory, 64 * MiB)).reached.current).toBeLessThan(64 * MiB);
  });

  test('is not for what grows: refused with both figures, the limit is never set', async () => {
    const memory = new FakeMemory(58 * MiB, 100 * MiB);
    grow(memory, 10);
    const lowerings: number[] = [];
    const lower = (): Promise<void> => Promise.resolve(void lowerings.push(memory.anon));
    await expect(make(memory, 64 * MiB, { lower })).rejects.toMatchObject({ reason: 'MEMORY_NOT_RECLAIMABLE' });
    expect(lowerings).toEqual([]);
    expect(memory.high).toBe('max');
  });

  test('is again for what has stopped growing', async () => {
    const memory = new FakeMemory(58 * MiB, 100 * MiB);
    grow(memory, 10, 400);
    const start = performance.now();
    let loweredAfter = 0;
    const lower = (): Promise<void> => Promise.resolve(void (loweredAfter = performance.now() - start));
    await make(memory, 64 * MiB, { lower });
    expect(loweredAfter).toBeGreaterThan(500);
    expect(memory.anon).toBe(62 * MiB);
  });

  test('with no time to watch it: DEADLINE_EXCEEDED', async () => {
    const memory = new FakeMemory(62 * MiB, 0);
    await expect(make(memory, 64 * MiB, { deadline: soon(50) })).rejects.toMatchObject({ reason: 'RECLAIM_TIMEOUT' });
    expect(memory.high).toBe('max');
  });
});

describe('time is bounded', () => {
  test('when page cache grows as fast as it is reclaimed: DEADLINE_EXCEEDED with both figures', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    memory.meanwhile = () => (memory.cache = 200 * MiB);
    const start = Date.now();
    await expect(make(memory, 64 * MiB, { deadline: soon(300) })).rejects.toMatchObject({
      code: 4,
      reason: 'RECLAIM_TIMEOUT',
      context: { asked: String(64 * MiB), found: String(240 * MiB) },
    });
    expect(Date.now() - start).toBeLessThan(5000);
    expect(memory.high).toBe('max');
    // Looked at again and again, but not as fast as the machine can.
    expect(memory.asked.length).toBeLessThan(30);
  });

  test('when a write to memory.reclaim does not return; another cgroup is reclaimed meanwhile', async () => {
    const [stuck, other] = [new FakeMemory(40 * MiB, 200 * MiB), new FakeMemory(40 * MiB, 200 * MiB)];
    let release = (): void => undefined;
    stuck.beforeReclaim = () => new Promise((resolve) => (release = resolve));
    const refused = expect(make(stuck, 64 * MiB, { deadline: soon(200) })).rejects.toMatchObject({
      reason: 'RECLAIM_TIMEOUT',
    });
    await make(other, 64 * MiB);
    await refused;
    expect(stuck.high).toBe('max');
    release();
  });

  test('two writes at a time in the whole process; who waits for a turn in vain has not written', async () => {
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
    const results = await Promise.allSettled(memories.map((memory) => make(memory, 64 * MiB, { deadline: soon(200) })));
    expect(
      results.map((result) => result.status === 'rejected' && (result.reason as { reason: string }).reason),
    ).toEqual(Array(4).fill('RECLAIM_TIMEOUT'));
    expect(most).toBe(2);
    expect(memories.map((memory) => memory.asked.length)).toEqual([1, 1, 0, 0]);
    expect(memories.map((memory) => memory.high)).toEqual(Array(4).fill('max'));
    for (const release of releases) release();
    // The turns are free again.
    await make(new FakeMemory(40 * MiB, 200 * MiB), 64 * MiB);
  });

  test.each([true, false])(
    'when a write to memory.high hangs (effect before the hang: %s): put back when it comes through',
    async (before) => {
      const memory = new FakeMemory(40 * MiB, 200 * MiB);
      let release = (): void => undefined;
      const hang = (value: Limit<Bytes>): Promise<void> =>
        value === 'max' ? Promise.resolve() : new Promise((resolve) => (release = resolve));
      if (before) memory.afterHigh = hang;
      else memory.beforeHigh = hang;
      await expect(make(memory, 64 * MiB, { deadline: soon(100) })).rejects.toMatchObject({
        reason: 'RECLAIM_TIMEOUT',
      });
      expect(memory.high).toBe('max');
      release();
      await new Promise((resolve) => setImmediate(resolve));
      expect(memory.high).toBe('max');
      expect(memory.highs.at(-1)).toBe('max');
    },
  );
});

describe('an abort', () => {
  test('ends it with its own reason, memory.high as it was', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    const abort = new AbortController();
    memory.beforeReclaim = () => {
      abort.abort(new Error('superseded'));
      return never();
    };
    await expect(make(memory, 64 * MiB, { signal: abort.signal })).rejects.toThrow('superseded');
    expect(memory.highs).toEqual([240 * MiB - 64 * 1024, 'max']);
  });

  test('that came before: nothing is done', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    await expect(make(memory, 64 * MiB, { signal: AbortSignal.abort(new Error('gone')) })).rejects.toThrow('gone');
    expect(memory.highs).toEqual([]);
  });
});

describe('a cgroup that goes', () => {
  test.each(['while it is reclaimed', 'while its limit is set'])('%s', async (when) => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    const go = (): Promise<void> => {
      memory.isGone = true;
      return Promise.resolve();
    };
    if (when === 'while it is reclaimed') {
      memory.beforeReclaim = go;
      await expect(make(memory, 64 * MiB)).rejects.toSatisfy(isCgroupVanished);
    } else {
      expect(await make(memory, 64 * MiB, { lower: go })).toMatchObject({ oomKills: 0 });
    }
  });
});

describe('memory.high', () => {
  test('is told before it is changed; a caller that cannot note it down ends it with nothing changed', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    memory.high = bytes(300 * MiB);
    const told: unknown[] = [];
    await make(memory, 64 * MiB, {
      onHigh: (previous) => Promise.resolve(void told.push(previous, memory.high)),
    });
    expect(told).toEqual([300 * MiB, 300 * MiB]);
    const written = memory.highs.length;
    memory.cache = 200 * MiB;
    await expect(make(memory, 64 * MiB, { onHigh: () => Promise.reject(new Error('disk full')) })).rejects.toThrow(
      'disk full',
    );
    expect(memory.highs.length).toBe(written);
    expect(memory.asked.length).toBeGreaterThan(0);
  });

  test('is put back when the limit cannot be set, and the error is that of setting it', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    await expect(make(memory, 64 * MiB, { lower: () => Promise.reject(new Error('runc')) })).rejects.toThrow('runc');
    expect(memory.high).toBe('max');
  });

  test('that somebody else writes meanwhile stays theirs', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    await make(memory, 64 * MiB, { lower: () => Promise.resolve(void (memory.high = bytes(50 * MiB))) });
    expect(memory.high).toBe(50 * MiB);
  });

  test('that somebody else writes on the way is what is put back, and told', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    const told: Limit<Bytes>[] = [];
    memory.meanwhile = () => {
      if (memory.asked.length === 2) memory.high = bytes(500 * MiB);
    };
    await make(memory, 64 * MiB, { onHigh: (previous) => Promise.resolve(void told.push(previous)) });
    expect(told).toEqual(['max', 500 * MiB]);
    expect(memory.high).toBe(500 * MiB);
  });

  test('that cannot be lowered: the error is that of the write', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    memory.beforeHigh = () => Promise.reject(writeRefused());
    await expect(make(memory, 64 * MiB)).rejects.toMatchObject({ reason: 'CGROUP_WRITE_FAILED' });
    expect(memory.high).toBe('max');
  });

  test('that cannot be put back: UNDO_FAILED with the value and both errors', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    memory.beforeHigh = (value) => (value === 'max' ? Promise.reject(writeRefused()) : Promise.resolve());
    await expect(make(memory, 64 * MiB, { lower: () => Promise.reject(new Error('runc')) })).rejects.toMatchObject({
      reason: 'UNDO_FAILED',
      message: expect.stringMatching(/runc.*restored to max.*refused/) as unknown,
      context: { asked: 'max' },
    });
  });
});
