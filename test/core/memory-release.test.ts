import { readFileSync } from 'node:fs';
import { beforeEach, describe, expect, test } from 'vitest';
import type { Madvise } from '../../src/core/memory-release.ts';
import {
  CHECK_MS,
  MARGIN,
  MemoryRelease,
  MOST_SETTLED_CHECKS,
  programMappings,
  SETTLED_CHECKS,
  SETTLED_MARGIN,
  unchangedMappings,
  unmap,
} from '../../src/core/memory-release.ts';

describe('release of memory', () => {
  const IDLE = 80_000_000;
  let rss = IDLE;
  let afterTrim = IDLE;
  let done: string[] = [];
  const create = (): MemoryRelease =>
    new MemoryRelease({
      rss: () => rss,
      collect: () => void done.push('collect'),
      collectCode: () => void done.push('collect code'),
      trim: () => {
        done.push('trim');
        rss = afterTrim;
      },
      unmap: () => void done.push('unmap'),
    });

  beforeEach(() => {
    [rss, afterTrim, done] = [IDLE, IDLE, []];
  });

  /** Looks at memory while it has these sizes, one after the other. */
  function look(release: MemoryRelease, ...sizes: readonly number[]): string[] {
    for (const size of sizes) {
      rss = size;
      release.check();
    }
    return done.splice(0);
  }

  /** Creates a MemoryRelease that has released memory after the start, after which this amount is in use. */
  function released(): MemoryRelease {
    const release = create();
    look(release, IDLE, IDLE, IDLE);
    return release;
  }

  describe('memory that the start has taken', () => {
    test('memory of the start is released once, with the code that has run, when it no longer grows', () => {
      const release = create();
      const grown = IDLE + MARGIN;
      expect(look(release, IDLE, grown)).toEqual([]);
      expect(look(release, grown + 100_000, grown)).toEqual(['collect code', 'trim', 'unmap']);
      expect(look(release, IDLE, IDLE, IDLE)).toEqual([]);
    });

    test('memory of the start is not collected again when the pages in use are mapped again', () => {
      const release = create();
      afterTrim = IDLE - 2 * MARGIN;
      expect(look(release, IDLE, IDLE, IDLE)).toEqual(['collect code', 'trim', 'unmap']);
      expect(look(release, IDLE, IDLE, IDLE, IDLE)).toEqual([]);
    });

    test('memory of the start is collected even if the process does little in the meantime', () => {
      expect(look(create(), IDLE, IDLE + 100_000)).toEqual(['collect code']);
    });
  });

  describe('memory that a burst has taken', () => {
    test('memory of a burst is released once when it no longer grows', () => {
      const release = released();
      const most = IDLE + 3 * MARGIN;
      expect(look(release, IDLE, IDLE + MARGIN, most)).toEqual([]);
      expect(look(release, most, most)).toEqual(['collect', 'trim']);
      expect(rss).toBe(IDLE);
      expect(look(release, IDLE, IDLE, IDLE)).toEqual([]);
      expect(look(release, most, most, most)).toEqual(['collect', 'trim']);
    });

    test('memory of a burst is not released repeatedly if it stays in use', () => {
      const release = released();
      afterTrim = IDLE + 2 * MARGIN;
      expect(look(release, IDLE, afterTrim, afterTrim, afterTrim)).toEqual(['collect', 'trim']);
      expect(look(release, afterTrim, afterTrim, afterTrim, afterTrim)).toEqual([]);
    });

    test('memory of a burst is not released immediately if it is below the margin', () => {
      expect(look(released(), IDLE, IDLE + MARGIN - 1, IDLE + MARGIN - 1, IDLE + MARGIN - 1)).toEqual([]);
    });

    const inARow = (size: number): readonly number[] => Array<number>(SETTLED_CHECKS).fill(size);

    test('less memory is released with the code that has run, once, when it has not grown for a while', () => {
      const release = released();
      const grown = IDLE + SETTLED_MARGIN;
      expect(look(release, IDLE, grown, ...inARow(grown))).toEqual(['collect code']);
      expect(look(release, grown)).toEqual(['trim', 'unmap']);
      expect(look(release, IDLE, ...inARow(IDLE))).toEqual([]);
      expect(look(release, ...inARow(grown - 1))).toEqual([]);
    });

    test('what stays after a burst is released with the code that has run when it has not grown for a while', () => {
      const release = released();
      afterTrim = IDLE + SETTLED_MARGIN;
      const most = IDLE + MARGIN;
      expect(look(release, IDLE, most, most, most)).toEqual(['collect', 'trim']);
      expect(look(release, ...inARow(afterTrim))).toEqual(['collect code', 'trim', 'unmap']);
    });

    test('memory that is used again after each release is released ever more rarely, down to once an hour', () => {
      const release = released();
      expect(look(release, IDLE)).toEqual([]);
      const gaps: number[] = [];
      let gap = 0;
      for (let check = 0; check < 10_000 && gaps.length < 10; check += 1) {
        gap += 1;
        const isReleased = look(release, gap === 1 ? IDLE : IDLE + SETTLED_MARGIN).includes('trim');
        if (!isReleased) continue;
        gaps.push(gap);
        gap = 0;
      }
      expect(gaps).toHaveLength(10);
      expect(gaps.slice(0, 7).every((each, index) => index === 0 || each > 1.5 * (gaps[index - 1] ?? 0))).toBe(true);
      expect(gaps.slice(-2).every((each) => each >= MOST_SETTLED_CHECKS && each < 1.1 * MOST_SETTLED_CHECKS)).toBe(
        true,
      );
      expect(MOST_SETTLED_CHECKS * CHECK_MS).toBe(3_600_000);
    });

    test('memory that grows all the time is not released', () => {
      const release = released();
      const growing = Array.from({ length: 20 }, (_, index) => IDLE + 2_000_000 * index);
      expect(look(release, ...growing)).toEqual([]);
    });
  });
});

const NODE = '/usr/bin/node';

/** One mapping as in proc_pid_smaps(5). */
const mapping = (range: string, permissions: string, path: string, anonymous = 0, swap = 0): string =>
  `${range} ${permissions} 00000000 fe:00 5710112                            ${path}
Size:               4280 kB
Rss:                4280 kB
Anonymous:     ${String(anonymous).padStart(9)} kB
Swap:          ${String(swap).padStart(9)} kB
SwapPss:               0 kB
VmFlags: rd mr mw me sd
`;

test('lists only mappings of a file that are read-only and unchanged', () => {
  const smaps = [
    mapping('00400000-00401000', 'r--p', NODE),
    mapping('00401000-00404000', 'r-xp', NODE),
    // Relocations, which are read-only once they are done.
    mapping('00404000-00405000', 'r--p', NODE, 24),
    // Relocations in swap, or on a kernel that does not report changed pages.
    mapping('00405000-00406000', 'r--p', NODE, 0, 24),
    mapping('00406000-00407000', 'r--p', NODE),
    mapping('00407000-00408000', 'r-xp', NODE, 0, 4),
    mapping('00409000-0040a000', 'rw-p', NODE),
    mapping('0040a000-0040b000', 'r--s', NODE),
    mapping('7f0000000000-7f0000001000', 'r-xp', '/usr/lib/libc.so.6'),
    mapping('7f2be0040000-7f2be0255000', 'r-xp', NODE),
    mapping('7f3000000000-7f3000001000', 'r-xp', `${NODE} (deleted)`),
    mapping('7f4000000000-7f4000001000', 'rw-p', ''),
  ].join('');
  expect(unchangedMappings(smaps, NODE)).toEqual([
    { start: 0x40_0000, length: 0x1000 },
    { start: 0x40_1000, length: 0x3000 },
    { start: 0x7f2b_e004_0000, length: 0x21_5000 },
  ]);
});

test('finds the code of this process, which can be unmapped while it runs', async () => {
  const mappings = await programMappings();
  const code = readFileSync('/proc/self/maps', 'utf8')
    .split('\n')
    .find((line) => line.includes(' r-xp ') && line.endsWith(process.execPath))!;
  const [start, end] = code.split(/[- ]/).map((address) => Number.parseInt(address, 16));
  expect(mappings).toContainEqual({ start, length: end! - start! });
  const { default: koffi } = await import('koffi');
  const madvise = koffi.load(null).func('int madvise(uintptr_t start, size_t length, int advice)') as Madvise;
  const failures: number[] = [];
  const before = residentFiles();
  unmap(mappings, (...range) => {
    const result = madvise(...range);
    if (result !== 0) failures.push(result);
    return result;
  });
  expect(residentFiles()).toBeLessThan(before / 2);
  expect(failures).toEqual([]);
});

/** Resident pages of files, in KiB. */
const residentFiles = (): number =>
  Number(/^RssFile:\s+(\d+) kB$/m.exec(readFileSync('/proc/self/status', 'utf8'))![1]);
