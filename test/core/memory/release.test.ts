import { beforeEach, describe, expect, test } from 'vitest';
import { MARGIN, MemoryRelease } from '../../../src/core/memory/release.ts';

const IDLE = 80_000_000;
let rss = IDLE;
let afterTrim = IDLE;
let done: string[] = [];
const create = (): MemoryRelease =>
  new MemoryRelease({
    rss: () => rss,
    collect: () => void done.push('collect'),
    trim: () => {
      done.push('trim');
      rss = afterTrim;
    },
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

describe('memory that a burst has taken', () => {
  test('is released when it does not grow any more, once', () => {
    const release = create();
    const most = IDLE + 3 * MARGIN;
    expect(look(release, IDLE, IDLE + MARGIN, most)).toEqual([]);
    expect(look(release, most, most)).toEqual(['collect', 'trim']);
    expect(rss).toBe(IDLE);
    expect(look(release, IDLE, IDLE, IDLE)).toEqual([]);
    expect(look(release, most, most, most)).toEqual(['collect', 'trim']);
  });

  test('is not released again and again if it stays in use', () => {
    const release = create();
    afterTrim = IDLE + 2 * MARGIN;
    expect(look(release, IDLE, afterTrim, afterTrim, afterTrim)).toEqual(['collect', 'trim']);
    expect(look(release, afterTrim, afterTrim, afterTrim, afterTrim)).toEqual([]);
  });

  test('is left alone if it is little', () => {
    expect(look(create(), IDLE, IDLE + MARGIN - 1, IDLE + MARGIN - 1, IDLE + MARGIN - 1)).toEqual([]);
  });
});
