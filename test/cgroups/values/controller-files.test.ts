import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  assertCpuMax,
  assertCpuWeight,
  formatCpuMax,
  formatLimit,
  isSameCpuMax,
  isSameLimit,
  parseCpuMax,
  parseCpuWeight,
  parseLimit,
  parseMemoryStat,
  parseOomKills,
  parseSize,
  unreclaimableOf,
} from '../../../src/cgroups/values/controller-files.ts';
import type { CpuMax } from '../../../src/core/quantities/numbers.ts';
import { bytes, cpuWeight, microseconds } from '../../../src/core/quantities/numbers.ts';

const anyCpuMax: fc.Arbitrary<CpuMax> = fc.record({
  quota: fc.oneof(fc.constant('max' as const), fc.integer({ min: 1000, max: 1e9 }).map(microseconds)),
  period: fc.integer({ min: 1000, max: 1e6 }).map(microseconds),
});

describe('cpu.max', () => {
  test('cpu.max is parsed as quota and period', () => {
    expect(parseCpuMax('max 100000')).toEqual({ quota: 'max', period: 100000 });
    expect(parseCpuMax('50000 100000')).toEqual({ quota: 50000, period: 100000 });
  });

  test('cpu.max in the range of the kernel is accepted, and is unchanged after formatting and parsing', () => {
    fc.assert(
      fc.property(anyCpuMax, (cpuMax) => {
        expect(isSameCpuMax(parseCpuMax(formatCpuMax(cpuMax)), cpuMax)).toBe(true);
        expect(() => assertCpuMax(cpuMax)).not.toThrow();
      }),
    );
  });

  test.each(['', 'max', '100000', '-1 100000', '1 2 3', 'max max', '0x10 100000'])(
    'cpu.max is rejected with the content %j',
    (text) => {
      expect(() => parseCpuMax(text)).toThrow(
        expect.objectContaining({
          reason: 'CGROUP_UNAVAILABLE',
          message: `cpu.max: unexpected content ${JSON.stringify(text)}`,
          context: { file: 'cpu.max', found: text },
        }),
      );
    },
  );

  test('an error repeats at most 80 characters of cpu.max', () => {
    const found = 'x'.repeat(80);
    expect(() => parseCpuMax(`${found}y`)).toThrow(
      expect.objectContaining({
        message: `cpu.max: unexpected content "${found}"`,
        context: { file: 'cpu.max', found },
      }),
    );
  });

  test('values of cpu.max differ by quota and by period', () => {
    const [a, b, c] = ['1000 100000', '2000 100000', '1000 50000'].map(parseCpuMax);
    expect([isSameCpuMax(a!, a!), isSameCpuMax(a!, b!), isSameCpuMax(a!, c!)]).toEqual([true, false, false]);
  });

  test('cpu.max may have the minimum and the maximum of quota and period', () => {
    for (const text of ['1000 1000', '1000 1000000', '17592186044415 100000'])
      expect(() => assertCpuMax(parseCpuMax(text))).not.toThrow();
  });

  test.each([
    ['max', 999, '999: the period must be 1000 to 1000000 microseconds'],
    ['max', 1_000_001, '1000001: the period must be 1000 to 1000000 microseconds'],
    [999, 100_000, '999: the quota must be at least 1000 microseconds'],
    [0, 100_000, '0: the quota must be at least 1000 microseconds'],
    [2 ** 44, 100_000, '17592186044416: the quota must be at most 17592186044415 microseconds'],
  ] as const)('cpu.max is rejected outside the range of the kernel: %s %s', (quota, period, why) => {
    const cpuMax = { quota: quota === 'max' ? quota : microseconds(quota), period: microseconds(period) };
    expect(() => assertCpuMax(cpuMax)).toThrow(
      expect.objectContaining({
        reason: 'INVALID_VALUE',
        message: `cpu.max: ${why}`,
        context: { file: 'cpu.max', asked: why.split(':')[0] },
      }),
    );
  });
});

describe('cpu.weight', () => {
  test('cpu.weight is parsed as 1 to 10000, or 0 for an idle cgroup', () => {
    expect(['0', '1', '100', '10000'].map(parseCpuWeight)).toEqual([0, 1, 100, 10000]);
    for (const text of ['', '10001', 'max', '1.5', '-1']) expect(() => parseCpuWeight(text)).toThrow(/cpu\.weight/);
  });

  test('cpu.weight cannot be set to 0 or above 10000', () => {
    for (const weight of [1, 10000]) expect(() => assertCpuWeight(cpuWeight(weight))).not.toThrow();
    for (const weight of [0, 10001]) {
      expect(() => assertCpuWeight(cpuWeight(weight))).toThrow(
        expect.objectContaining({
          reason: 'INVALID_VALUE',
          message: `cpu.weight: ${weight}: the weight must be 1 to 10000`,
        }),
      );
    }
  });
});

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
