import { expect, test } from 'vitest';
import { versionsTable } from './table.ts';

test('the table of versions has a row for each release and a cell for each suite that ran', () => {
  const versions = new Map([
    ['1.6', '1.6.20'],
    ['2.3', '2.3.7'],
  ] as const);
  const failures = [{ name: 'a test', what: 'expected 1' }];
  const results = [
    { containerd: '1.6', suite: 'end-to-end', outcome: { what: '', passed: 70, failures: [] } },
    { containerd: '2.3', suite: 'matrix-crun', outcome: { what: '', passed: 180, failures } },
  ] as const;
  expect(versionsTable(versions, results)).toBe(
    [
      '| containerd | end-to-end | matrix-runc | matrix-runc-1.3 | matrix-crun | conformance |',
      '|---|---|---|---|---|---|',
      '| 1.6.20 | 70 passed |  |  |  |  |',
      '| 2.3.7 |  |  |  | 180 passed, 1 FAILED |  |',
    ].join('\n'),
  );
});
