import { expect, test } from 'vitest';
import type { Stage } from './stages.ts';
import { nightlyTable } from './table.ts';

const crash: Stage = { name: 'crash', suite: 'crash', minutes: 120 };
const soak: Stage = { name: 'soak', suite: 'soak', minutes: 60 };
const kubelet: Stage = { name: 'kubelet-1.34', suite: 'kubelet', minutes: 90, needsGo: true };

test('the table shows the result, date and versions of each stage, and stages that did not run or were ended', () => {
  const ended = { passed: 40, failed: 2, seconds: 61, date: '2026-11-23', versions: 'kubelet 1.34.4' };
  const late = { passed: 0, failed: 1, seconds: 3600, date: '2026-11-23', isLate: true } as const;
  expect(
    nightlyTable([crash, soak, kubelet], { 'kubelet-1.34': ended, soak: late }, true).split('\n').slice(2),
  ).toEqual([
    '| `npm run nightly -- --only crash` |  |  | not run |  |',
    '| `npm run nightly -- --only soak` |  | 2026-11-23 | 0 passed, 1 FAILED, ENDED after 60 min | 60 min |',
    '| `npm run nightly -- --only kubelet-1.34` | kubelet 1.34.4 | 2026-11-23 | 40 passed, 2 FAILED | 2 min |',
  ]);
  expect(nightlyTable([kubelet], {}, false)).toContain('| not run: needs Go |');
});
