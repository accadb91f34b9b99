import { describe, expect, test } from 'vitest';
import { oncePerKey } from '../../../src/core/observe/failure-log.ts';

describe('oncePerKey', () => {
  test('oncePerKey returns true only for the first use of a key', () => {
    const first = oncePerKey();
    expect(['a', 'b', 'a', 'b', 'c'].map((key) => first(key))).toEqual([true, true, false, false, true]);
  });

  test('oncePerKey forgets the oldest key when it is full', () => {
    const first = oncePerKey(2);
    expect(['a', 'b', 'a', 'c', 'a', 'b'].map((key) => first(key))).toEqual([true, true, false, true, false, true]);
  });
});
