import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  formatLimit,
  isSameLimit,
  parseLimit,
  parseMemoryStat,
  parseOomKills,
  parseSize,
  unreclaimableOf,
} from '../../../src/cgroups/values/controller-files.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';

const page = bytes(4096);

describe('a memory limit', () => {
  test('a memory limit is a size or max, and is unchanged after formatting and parsing', () => {
    expect(parseLimit('max', 'memory.max')).toBe('max');
    expect(parseLimit('268435456', 'memory.max')).toBe(268435456);
    fc.assert(
      fc.property(fc.maxSafeNat(), (size) => {
        expect(parseLimit(formatLimit(bytes(size)), 'memory.max')).toBe(size);
      }),
    );
  });

  test.each(['', 'MAX', '-1', '1.5', '0x10', '1e9', '1e30', '9'.repeat(21), 'max\n', ' 1'])(
    'a memory limit is rejected with the content %j',
    (text) => {
      expect(() => parseLimit(text, 'memory.max')).toThrow(expect.objectContaining({ reason: 'CGROUP_UNAVAILABLE' }));
    },
  );

  test('a memory limit above the memory of any machine is no limit', () => {
    expect(parseLimit('9007199254740991', 'memory.max')).toBe(Number.MAX_SAFE_INTEGER);
    expect(parseLimit('9007199254740992', 'memory.max')).toBe('max');
    expect(parseLimit('9223372036854771712', 'memory.max')).toBe('max');
    expect(() => parseSize('9007199254740992', 'memory.current')).toThrow(/memory\.current/);
  });

  test('a size such as memory.current cannot be max', () => {
    expect(() => parseSize('max', 'memory.current')).toThrow(/memory\.current/);
  });

  test('a memory limit equals its value that the kernel has rounded down to a page', () => {
    expect(isSameLimit(bytes(100_000_000), bytes(99_999_744), page)).toBe(true);
    expect(isSameLimit(bytes(8192), bytes(8192), page)).toBe(true);
    expect(isSameLimit(bytes(8192), bytes(4096), page)).toBe(false);
    expect(isSameLimit(bytes(8191), bytes(8192), page)).toBe(false);
    expect(isSameLimit('max', bytes(4096), page)).toBe(false);
    expect(isSameLimit(bytes(4096), 'max', page)).toBe(false);
    expect(isSameLimit('max', 'max', page)).toBe(true);
    // A kernel with smaller pages has the limit to the byte.
    expect(isSameLimit(bytes(8191), bytes(8191), page)).toBe(true);
    // With pages of 64 KiB the kernel rounds 72 KiB down to 64 KiB.
    expect(isSameLimit(bytes(65536 + 8192), bytes(65536), bytes(65536))).toBe(true);
  });
});

describe('memory.stat', () => {
  test('memory.stat has the size of zswap, and of the memory that zswap has compressed', () => {
    const held = parseMemoryStat('zswap 10\nzswapped 40\nzswpin 3\nzswpout 5\n');
    expect([held.zswap, held.zswapped]).toEqual([10, 40]);
  });

  const stat = (lines: Record<string, number>): string =>
    Object.entries(lines)
      .map(([key, value]) => `${key} ${value}\n`)
      .join('');

  test('memory.stat is read by its keys, and other keys are ignored', () => {
    const held = parseMemoryStat(
      stat({ anon: 10, file: 50, kernel: 9, shmem: 20, unevictable: 3, inactive_file: 7, zswap: 1 }),
    );
    expect(held).toMatchObject({ anon: 10, file: 50, shmem: 20, unevictable: 3, inactiveFile: 7 });
  });

  test('counts a page of a noswap volume once as unreclaimable, although it is both shmem and unevictable', () => {
    const held = parseMemoryStat(stat({ anon: 10, shmem: 200, unevictable: 200, active_anon: 0, inactive_anon: 10 }));
    expect(unreclaimableOf(held)).toBe(210);
  });

  test('counts locked page cache as unreclaimable, although it is neither anon nor shmem', () => {
    const held = parseMemoryStat(stat({ anon: 10, shmem: 20, unevictable: 5, active_anon: 10, inactive_anon: 20 }));
    expect(unreclaimableOf(held)).toBe(35);
  });

  test('counts pages that are temporarily on no list as unreclaimable', () => {
    const held = parseMemoryStat(stat({ anon: 10, shmem: 20, unevictable: 0, active_anon: 1, inactive_anon: 2 }));
    expect(unreclaimableOf(held)).toBe(30);
  });

  test('counts kernel memory that cannot be reclaimed, before and after Linux 5.18', () => {
    const parts = { kernel_stack: 1, pagetables: 2, percpu: 4, slab_reclaimable: 100, slab_unreclaimable: 8, sock: 16 };
    expect(unreclaimableOf(parseMemoryStat(stat(parts)))).toBe(31);
    expect(unreclaimableOf(parseMemoryStat(stat({ ...parts, kernel: 120 })))).toBe(36);
  });

  test('counts each unreclaimable page exactly once for any mix of pages', () => {
    const pages = fc.nat({ max: 1e9 });
    fc.assert(
      fc.property(
        fc.record({ anon: pages, lockedAnon: pages, shmem: pages, lockedShmem: pages, lockedFile: pages }),
        (mix) => {
          const held = parseMemoryStat(
            stat({
              anon: mix.anon + mix.lockedAnon,
              shmem: mix.shmem + mix.lockedShmem,
              unevictable: mix.lockedAnon + mix.lockedShmem + mix.lockedFile,
              active_anon: mix.shmem,
              inactive_anon: mix.anon,
            }),
          );
          expect(unreclaimableOf(held)).toBe(Object.values(mix).reduce((sum, value) => sum + value, 0));
        },
      ),
    );
  });

  test('memory.stat with an invalid line is rejected', () => {
    for (const line of ['anon ten', 'anon', ' anon 1', 'anon 1 2', 'anon 1x', 'a b 1', `x${' '.repeat(100)}`]) {
      expect(() => parseMemoryStat(`file 1\n${line}\n`)).toThrow(
        expect.objectContaining({
          reason: 'CGROUP_UNAVAILABLE',
          message: `memory.stat: unexpected content ${JSON.stringify(line.slice(0, 80))}`,
          context: { file: 'memory.stat', found: line.slice(0, 80) },
        }),
      );
    }
  });
});

test('memory.stat with a number that no machine has is rejected', () => {
  for (const key of ['anon', 'file', 'kernel', 'sock', 'slab_reclaimable'])
    for (const value of ['9007199254740992', '18446744073709551615', '9'.repeat(400)])
      expect(() => parseMemoryStat(`shmem 1\n${key} ${value}\n`)).toThrow(
        expect.objectContaining({ reason: 'CGROUP_UNAVAILABLE' }),
      );
  const most = 2 ** 50;
  const held = parseMemoryStat(`anon ${most}\nshmem ${most}\nkernel ${most}\nsock ${most}\n`);
  expect(unreclaimableOf(held)).toBe(4 * most);
});

describe('memory.events', () => {
  test('memory.events has the number of OOM kills', () => {
    expect(parseOomKills('low 0\nhigh 3\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n', 'memory.events')).toBe(1);
  });

  test('memory.events without the number of OOM kills is rejected', () => {
    expect(() => parseOomKills('low 0\n', 'memory.events')).toThrow(/memory\.events/);
  });
});
