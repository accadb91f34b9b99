import { expect, test } from 'vitest';
import { FailureLog } from '../../../src/core/observe/failure-log.ts';
import { type LogFields, noLog } from '../../../src/core/observe/interfaces.ts';

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
