import { describe, expect, it } from 'vitest';
import {
  type LowerUsageResult,
  type LowerUsageOptions,
  isCgroupVanished,
  lowerUsage,
} from '../../../src/cgroups/index.ts';
import { type Limit, type Bytes, bytes } from '../../../src/core/quantities/index.ts';
import { FakeMemory, writeRefused } from '../../support/fake-memory.ts';

const MI = 1024 * 1024;
const CGROUP = '/kubepods/pod1/c1';
const soon = (milliseconds: number): number => Date.now() + milliseconds;

const make = (
  memory: FakeMemory,
  target: number,
  options: Partial<LowerUsageOptions> = {},
): Promise<LowerUsageResult> =>
  lowerUsage(memory, CGROUP, { target: bytes(target), deadline: soon(30_000), ...options });

const never = (): Promise<never> => new Promise(() => undefined);

describe('room is made', () => {
  it('of page cache, in steps, with memory.high following use down, and put back as it was', async () => {
    const memory = new FakeMemory(40 * MI, 200 * MI);
    const made = await make(memory, 64 * MI);
    expect(memory.current).toBe(56 * MI);
    expect(made).toMatchObject({ before: { current: 240 * MI }, reached: { current: 56 * MI }, oomKills: 0 });
    expect(made.reclaims).toBe(memory.asked.length);
    expect(memory.asked.length).toBeGreaterThan(2);
    expect(Math.max(...memory.asked)).toBeLessThan(184 * MI);
    const lowered = memory.highs.slice(0, -1).map(Number);
    expect(lowered).toEqual([...lowered].sort((a, b) => b - a));
    expect(lowered.at(-1)).toBe(56 * MI);
    expect(memory.highs.at(-1)).toBe('max');
    expect(memory.high).toBe('max');
  });

  it('while the limit is set, memory.high holds use under it', async () => {
    const memory = new FakeMemory(40 * MI, 200 * MI);
    const atLower: unknown[] = [];
    await make(memory, 64 * MI, {
      lower: () => Promise.resolve(void atLower.push(memory.high, memory.current)),
    });
    expect(atLower).toEqual([56 * MI, 56 * MI]);
    expect(memory.high).toBe('max');
  });

  it('and is lowered once more when it was lifted meanwhile, as systemd does to a unit that somebody changes', async () => {
    const memory = new FakeMemory(40 * MI, 200 * MI);
    let isLifted = false;
    const atLower: unknown[] = [];
    memory.meanwhile = () => {
      if (memory.high !== 56 * MI || isLifted) return;
      isLifted = true;
      memory.high = 'max';
    };
    await make(memory, 64 * MI, {
      lower: () => Promise.resolve(void atLower.push(memory.high, memory.current)),
    });
    expect(isLifted).toBe(true);
    expect(atLower).toEqual([56 * MI, 56 * MI]);
    expect(memory.high).toBe('max');
  });

  it('by nothing but memory.high when use is under the target already', async () => {
    const memory = new FakeMemory(10 * MI, 10 * MI);
    await make(memory, 64 * MI);
    expect(memory.asked).toEqual([]);
    expect(memory.highs).toEqual([56 * MI, 'max']);
  });

  it('with a memory.high that is lower than needed left alone', async () => {
    const memory = new FakeMemory(10 * MI, 20 * MI);
    memory.high = bytes(32 * MI);
    const told: Limit<Bytes>[] = [];
    await make(memory, 64 * MI, { onHigh: (high) => Promise.resolve(void told.push(high)) });
    expect(memory.highs).toEqual([]);
    expect(told).toEqual([]);
  });

  it('on kernels without memory.reclaim by memory.high alone, in steps', async () => {
    const memory = new FakeMemory(40 * MI, 200 * MI);
    memory.hasReclaim = false;
    memory.high = bytes(250 * MI);
    expect(await make(memory, 64 * MI)).toMatchObject({ reclaims: 0 });
    expect(memory.current).toBe(56 * MI);
    expect(memory.highs.length).toBeGreaterThan(4);
    expect(memory.high).toBe(250 * MI);
  });

  it('under the target, if not by the whole margin, when the rest does not come free', async () => {
    const memory = new FakeMemory(20 * MI, 100 * MI, 40 * MI);
    const made = await make(memory, 64 * MI);
    expect(made.reached.current).toBe(60 * MI);
    expect(memory.high).toBe('max');
  });

  it('when pages come free late: EAGAIN is no error', async () => {
    const memory = new FakeMemory(20 * MI, 10 * MI, 100 * MI);
    let looks = 0;
    memory.meanwhile = () => {
      looks += 1;
      if (looks < 5) return;
      memory.cache += memory.stuck;
      memory.stuck = 0;
    };
    expect((await make(memory, 64 * MI)).reached.current).toBeLessThanOrEqual(56 * MI);
  });

  it('with time up before it began, only if use is under the target as it is', async () => {
    const memory = new FakeMemory(10 * MI, 50 * MI);
    expect(await make(memory, 64 * MI, { deadline: soon(-1) })).toMatchObject({ reclaims: 0 });
    memory.cache = 60 * MI;
    await expect(make(memory, 64 * MI, { deadline: soon(-1) })).rejects.toMatchObject({ reason: 'RECLAIM_TIMEOUT' });
    expect(memory.highs).toEqual([]);
  });

  it('and kills of the OOM killer meanwhile are reported', async () => {
    const memory = new FakeMemory(40 * MI, 200 * MI);
    memory.oomKills = 3;
    expect(await make(memory, 64 * MI, { lower: () => Promise.resolve(void (memory.oomKills += 2)) })).toMatchObject({
      oomKills: 2,
    });
  });
});

describe('what cannot be reclaimed', () => {
  it.each([64 * MI, 80 * MI])(
    '%d bytes, at or above the target: refused with both figures, nothing changed',
    async (anon) => {
      const memory = new FakeMemory(anon, 100 * MI);
      await expect(make(memory, 64 * MI)).rejects.toMatchObject({
        code: 9,
        reason: 'MEMORY_NOT_RECLAIMABLE',
        context: { file: `${CGROUP}/memory.current`, asked: String(64 * MI), found: String(anon) },
      });
      expect(memory.highs).toEqual([]);
      expect(memory.asked).toEqual([]);
    },
  );

  it('and grows on the way: refused as soon as it passes the target, memory.high as it was', async () => {
    const memory = new FakeMemory(40 * MI, 200 * MI);
    memory.high = bytes(300 * MI);
    memory.meanwhile = () => (memory.anon += 10 * MI);
    await expect(make(memory, 64 * MI)).rejects.toMatchObject({ reason: 'MEMORY_NOT_RECLAIMABLE' });
    expect(memory.anon).toBe(70 * MI);
    expect(memory.high).toBe(300 * MI);
  });
});

describe('hardly room beside what cannot be reclaimed', () => {
  /** Grows so many MiB in a second, for so many milliseconds. */
  const grow = (memory: FakeMemory, perSecond: number, milliseconds = Infinity): void => {
    const [start, first] = [performance.now(), memory.anon];
    memory.meanwhile = () => {
      const passed = Math.min(performance.now() - start, milliseconds);
      memory.anon = Math.max(memory.anon, first + Math.floor((perSecond * MI * passed) / 1000));
    };
  };

  it('is enough for what does not grow', async () => {
    const memory = new FakeMemory(62 * MI, 100 * MI);
    expect((await make(memory, 64 * MI)).reached.current).toBeLessThan(64 * MI);
  });

  it('is not for what grows: refused with both figures, the limit is never set', async () => {
    const memory = new FakeMemory(58 * MI, 100 * MI);
    grow(memory, 10);
    const lowerings: number[] = [];
    const lower = (): Promise<void> => Promise.resolve(void lowerings.push(memory.anon));
    await expect(make(memory, 64 * MI, { lower })).rejects.toMatchObject({ reason: 'MEMORY_NOT_RECLAIMABLE' });
    expect(lowerings).toEqual([]);
    expect(memory.high).toBe('max');
  });

  it('is again for what has stopped growing', async () => {
    const memory = new FakeMemory(58 * MI, 100 * MI);
    grow(memory, 10, 400);
    const start = performance.now();
    let loweredAfter = 0;
    const lower = (): Promise<void> => Promise.resolve(void (loweredAfter = performance.now() - start));
    await make(memory, 64 * MI, { lower });
    expect(loweredAfter).toBeGreaterThan(500);
    expect(memory.anon).toBe(62 * MI);
  });

  it('with no time to watch it: DEADLINE_EXCEEDED', async () => {
    const memory = new FakeMemory(62 * MI, 0);
    await expect(make(memory, 64 * MI, { deadline: soon(50) })).rejects.toMatchObject({ reason: 'RECLAIM_TIMEOUT' });
    expect(memory.high).toBe('max');
  });
});

describe('time is bounded', () => {
  it('when page cache grows as fast as it is reclaimed: DEADLINE_EXCEEDED with both figures', async () => {
    const memory = new FakeMemory(40 * MI, 200 * MI);
    memory.meanwhile = () => (memory.cache = 200 * MI);
    const start = Date.now();
    await expect(make(memory, 64 * MI, { deadline: soon(300) })).rejects.toMatchObject({
      code: 4,
      reason: 'RECLAIM_TIMEOUT',
      context: { asked: String(64 * MI), found: String(240 * MI) },
    });
    expect(Date.now() - start).toBeLessThan(5000);
    expect(memory.high).toBe('max');
    // Looked at again and again, but not as fast as the machine can.
    expect(memory.asked.length).toBeLessThan(30);
  });

  it('when a write to memory.reclaim does not return; another cgroup is reclaimed meanwhile', async () => {
    const [stuck, other] = [new FakeMemory(40 * MI, 200 * MI), new FakeMemory(40 * MI, 200 * MI)];
    let release = (): void => undefined;
    stuck.beforeReclaim = () => new Promise((resolve) => (release = resolve));
    const refused = expect(make(stuck, 64 * MI, { deadline: soon(200) })).rejects.toMatchObject({
      reason: 'RECLAIM_TIMEOUT',
    });
    await make(other, 64 * MI);
    await refused;
    expect(stuck.high).toBe('max');
    release();
  });

  it('two writes at a time in the whole process; who waits for a turn in vain has not written', async () => {
    let running = 0;
    let most = 0;
    const releases: (() => void)[] = [];
    const memories = Array.from({ length: 4 }, () => new FakeMemory(40 * MI, 200 * MI));
    for (const memory of memories)
      memory.beforeReclaim = async () => {
        most = Math.max(most, (running += 1));
        await new Promise<void>((resolve) => releases.push(resolve));
        running -= 1;
      };
    const results = await Promise.allSettled(memories.map((memory) => make(memory, 64 * MI, { deadline: soon(200) })));
    expect(
      results.map((result) => result.status === 'rejected' && (result.reason as { reason: string }).reason),
    ).toEqual(Array(4).fill('RECLAIM_TIMEOUT'));
    expect(most).toBe(2);
    expect(memories.map((memory) => memory.asked.length)).toEqual([1, 1, 0, 0]);
    expect(memories.map((memory) => memory.high)).toEqual(Array(4).fill('max'));
    for (const release of releases) release();
    // The turns are free again.
    await make(new FakeMemory(40 * MI, 200 * MI), 64 * MI);
  });

  it.each([true, false])(
    'when a write to memory.high hangs (effect before the hang: %s): put back when it comes through',
    async (before) => {
      const memory = new FakeMemory(40 * MI, 200 * MI);
      let release = (): void => undefined;
      const hang = (value: Limit<Bytes>): Promise<void> =>
        value === 'max' ? Promise.resolve() : new Promise((resolve) => (release = resolve));
      if (before) memory.afterHigh = hang;
      else memory.beforeHigh = hang;
      await expect(make(memory, 64 * MI, { deadline: soon(100) })).rejects.toMatchObject({ reason: 'RECLAIM_TIMEOUT' });
      expect(memory.high).toBe('max');
      release();
      await new Promise((resolve) => setImmediate(resolve));
      expect(memory.high).toBe('max');
      expect(memory.highs.at(-1)).toBe('max');
    },
  );
});

describe('an abort', () => {
  it('ends it with its own reason, memory.high as it was', async () => {
    const memory = new FakeMemory(40 * MI, 200 * MI);
    const abort = new AbortController();
    memory.beforeReclaim = () => {
      abort.abort(new Error('superseded'));
      return never();
    };
    await expect(make(memory, 64 * MI, { signal: abort.signal })).rejects.toThrow('superseded');
    expect(memory.highs).toEqual([240 * MI, 'max']);
  });

  it('that came before: nothing is done', async () => {
    const memory = new FakeMemory(40 * MI, 200 * MI);
    await expect(make(memory, 64 * MI, { signal: AbortSignal.abort(new Error('gone')) })).rejects.toThrow('gone');
    expect(memory.highs).toEqual([]);
  });
});

describe('a cgroup that goes', () => {
  it.each(['while it is reclaimed', 'while its limit is set'])('%s', async (when) => {
    const memory = new FakeMemory(40 * MI, 200 * MI);
    const go = (): Promise<void> => {
      memory.isGone = true;
      return Promise.resolve();
    };
    if (when === 'while it is reclaimed') {
      memory.beforeReclaim = go;
      await expect(make(memory, 64 * MI)).rejects.toSatisfy(isCgroupVanished);
    } else {
      expect(await make(memory, 64 * MI, { lower: go })).toMatchObject({ oomKills: 0 });
    }
  });
});

describe('memory.high', () => {
  it('is told before it is changed; a caller that cannot note it down ends it with nothing changed', async () => {
    const memory = new FakeMemory(40 * MI, 200 * MI);
    memory.high = bytes(300 * MI);
    const told: unknown[] = [];
    await make(memory, 64 * MI, {
      onHigh: (previous) => Promise.resolve(void told.push(previous, memory.high)),
    });
    expect(told).toEqual([300 * MI, 300 * MI]);
    const written = memory.highs.length;
    memory.cache = 200 * MI;
    await expect(make(memory, 64 * MI, { onHigh: () => Promise.reject(new Error('disk full')) })).rejects.toThrow(
      'disk full',
    );
    expect(memory.highs.length).toBe(written);
    expect(memory.asked.length).toBeGreaterThan(0);
  });

  it('is put back when the limit cannot be set, and the error is that of setting it', async () => {
    const memory = new FakeMemory(40 * MI, 200 * MI);
    await expect(make(memory, 64 * MI, { lower: () => Promise.reject(new Error('runc')) })).rejects.toThrow('runc');
    expect(memory.high).toBe('max');
  });

  it('that somebody else writes meanwhile stays theirs', async () => {
    const memory = new FakeMemory(40 * MI, 200 * MI);
    await make(memory, 64 * MI, { lower: () => Promise.resolve(void (memory.high = bytes(50 * MI))) });
    expect(memory.high).toBe(50 * MI);
  });

  it('that somebody else writes on the way is what is put back, and told', async () => {
    const memory = new FakeMemory(40 * MI, 200 * MI);
    const told: Limit<Bytes>[] = [];
    memory.meanwhile = () => {
      if (memory.asked.length === 2) memory.high = bytes(500 * MI);
    };
    await make(memory, 64 * MI, { onHigh: (previous) => Promise.resolve(void told.push(previous)) });
    expect(told).toEqual(['max', 500 * MI]);
    expect(memory.high).toBe(500 * MI);
  });

  it('that cannot be lowered: the error is that of the write', async () => {
    const memory = new FakeMemory(40 * MI, 200 * MI);
    memory.beforeHigh = () => Promise.reject(writeRefused());
    await expect(make(memory, 64 * MI)).rejects.toMatchObject({ reason: 'CGROUP_WRITE_FAILED' });
    expect(memory.high).toBe('max');
  });

  it('that cannot be put back: UNDO_FAILED with the value and both errors', async () => {
    const memory = new FakeMemory(40 * MI, 200 * MI);
    memory.beforeHigh = (value) => (value === 'max' ? Promise.reject(writeRefused()) : Promise.resolve());
    await expect(make(memory, 64 * MI, { lower: () => Promise.reject(new Error('runc')) })).rejects.toMatchObject({
      reason: 'UNDO_FAILED',
      message: expect.stringMatching(/runc.*restored to max.*refused/) as unknown,
      context: { asked: 'max' },
    });
  });
});
