import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { type Step, steps } from './steps.ts';
import { nightlyTable } from './table.ts';

const crash: Step = { name: 'crash points', command: ['run', 'crash'] };
const kubelet: Step = { name: 'kubelet 1.34', command: ['run', 'kubelet', '--', '--kubelet', '1.34'], needsGo: true };

test('the table has the result, date and versions of each command, and says what did not run', () => {
  const ended = { passed: 40, failed: 2, seconds: 61, date: '2026-11-23', versions: 'kubelet 1.34.4' };
  expect(nightlyTable([crash, kubelet], { 'kubelet 1.34': ended }).split('\n').slice(2)).toEqual([
    '| crash points | `npm run crash` |  |  | not run |  |',
    '| kubelet 1.34 | `npm run kubelet -- --kubelet 1.34` | kubelet 1.34.4 | 2026-11-23 | 40 passed, 2 FAILED | 2 min |',
  ]);
});

test('each step has a name of its own and is a command of package.json', () => {
  const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as { scripts: Record<string, string> };
  expect(new Set(steps.map(({ name }) => name)).size).toBe(steps.length);
  for (const { command } of steps) expect(scripts).toHaveProperty([command[0] === 'run' ? command[1]! : command[0]!]);
});
