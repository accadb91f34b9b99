import { describe, expect, test } from 'vitest';
import { FailureLog, oncePerKey } from '../../../src/core/observe/failure-log.ts';
import type { LogFields } from '../../../src/core/observe/interfaces.ts';
import { noLog } from '../../../src/core/observe/interfaces.ts';

test('a failure is logged once for each cause, and the next line reports the number of failures', () => {
  const lines: [string, LogFields][] = [];
  const write = (fields: LogFields, text: string): void => void lines.push([text, fields]);
  const failures = new FailureLog({ ...noLog, error: write, info: write }, { failed: 'not loaded', over: 'loaded' });
  failures.succeeded();
  expect(lines).toEqual([]);
  const missing = (): Error => Object.assign(new Error('no file'), { code: 'ENOENT' });
  for (let count = 0; count < 3; count += 1) failures.failed(missing());
  failures.failed(new RangeError('no memory'), { because: 'no memory' });
  failures.succeeded();
  failures.failed(missing());
  expect(lines).toMatchObject([
    ['not loaded', { error: 'Error', errno: 'ENOENT' }],
    ['not loaded', { error: 'RangeError', because: 'no memory', failures: 3 }],
    ['loaded', { failures: 1 }],
    ['not loaded', { errno: 'ENOENT' }],
  ]);
  expect(lines[3]![1]).not.toHaveProperty('failures');
});

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
