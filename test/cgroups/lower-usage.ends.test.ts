import { describe, expect, test } from 'vitest';
import { isCgroupVanished } from '../../src/cgroups/file.ts';
import type { Bytes, Limit } from '../../src/core/quantities/numbers.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { FakeMemory } from '../support/fake-memory.ts';
import { never, reclaimTo, reclaimWithin, soon } from '../support/lower-usage.ts';

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
