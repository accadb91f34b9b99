import { beforeEach, describe, expect, test } from 'vitest';
import { MARGIN, MemoryRelease } from '../../src/core/memory-release.ts';

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

/** Creates one that has released the start, after which this memory is left. */
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

  test('memory of a burst is not released if it is below the margin', () => {
    expect(look(released(), IDLE, IDLE + MARGIN - 1, IDLE + MARGIN - 1, IDLE + MARGIN - 1)).toEqual([]);
  });
});
