import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { chapters } from '../support/e2e/docs-chapters.ts';
import { commandsOf, isAsPrinted, pages } from './commands.ts';
import { elsewhere, notRunHere } from './proved.ts';

const all = pages.flatMap(commandsOf);
const hasReason = (line: string): boolean =>
  Object.hasOwn(elsewhere, line) || Object.keys(notRunHere).some((start) => line.startsWith(start));

test('a test runs every command of README and docs/, or proved.ts has a reason', () => {
  const run = chapters.flatMap(({ lines }) => lines);
  const missing = all.filter(({ line }) => !run.includes(line) && !hasReason(line));
  expect(missing.map(({ page, line }) => `${page}: ${line}`)).toEqual([]);
  const present = all.map(({ line }) => line);
  expect(run.filter((line) => !present.includes(line))).toEqual([]);
  expect(Object.keys(elsewhere).filter((line) => !present.includes(line))).toEqual([]);
  expect(Object.keys(notRunHere).filter((start) => !present.some((line) => line.startsWith(start)))).toEqual([]);
  expect(all.length).toBeGreaterThan(30);
});

test('commandsOf finds commands in fenced and indented blocks, joins continued lines and returns the output', () => {
  const folder = mkdtempSync(join(tmpdir(), 'commands-'));
  const page = join(folder, 'page.md');
  const text = [
    'Text with npm in it.',
    '    npm test        # all of it',
    '    kubectl patch pod web \\',
    '      --patch x',
    '',
    '    metadata:',
    '```console',
    '$ curl -s x | grep "{"',
    'one {1}',
    '...',
    '$ resizectl get pods',
    '```',
    '```yaml',
    'a: npm test',
    '```',
    '1. In a list:',
    '',
    '       kubectl get pods \\',
    '         --watch',
  ];
  writeFileSync(page, text.join('\n'));
  expect(commandsOf(page).map(({ line, prints }) => [line, ...prints])).toEqual([
    ['npm test'],
    ['kubectl patch pod web --patch x'],
    ['curl -s x | grep "{"', 'one {1}', '...'],
    ['resizectl get pods'],
    ['kubectl get pods --watch'],
  ]);
  rmSync(folder, { recursive: true });
});

test('isAsPrinted compares output, where ... stands for any text', () => {
  expect(isAsPrinted(['a   ... c (1)', '...', 'e'], 'a b c (1)\nd\nd\ne\n')).toBe(true);
  expect(isAsPrinted(['a', '...', 'e'], 'a\ne')).toBe(true);
  expect(isAsPrinted(['a'], 'a\nb')).toBe(false);
  expect(isAsPrinted(['a.'], 'ab')).toBe(false);
});
