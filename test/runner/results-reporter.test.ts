import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Progress, Results } from './results-reporter.ts';
import { count, progressText, report, vitest } from './vitest-run.ts';

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'results-'));
  symlinkSync(resolve('node_modules'), join(folder, 'node_modules'));
});
afterEach(() => rmSync(folder, { recursive: true }));

const results = (): string => join(folder, 'results.json');

/** Runs vitest with these files. Returns its results. */
async function run(files: Readonly<Record<string, string>>, ...more: readonly string[]): Promise<Results> {
  const begin = `import { afterAll, beforeAll, describe, expect, test } from 'vitest';\n`;
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), begin + text);
  const reporter = `--reporter=${resolve('test/runner/results-reporter.ts')}`;
  const flags = ['run', '--root', folder, reporter, `--outputFile.results=${results()}`, ...more];
  await execa(resolve(vitest), flags, { reject: false });
  return JSON.parse(readFileSync(results(), 'utf8')) as Results;
}

test('a failed test is reported by name, with expected and found values', async () => {
  const { passed, failures } = await run({
    'some.test.ts': `
      test('good', () => {});
      describe('of two', () => test('bad', () => expect({ a: 1, b: 5 }, 'the pod').toEqual({ a: 2, b: 5 })));`,
  });
  expect(passed).toBe(1);
  expect(failures).toEqual([
    {
      name: 'some.test.ts: of two > bad',
      what: 'the pod: expected { a: 1, b: 5 } to deeply equal { a: 2, b: 5 }\n-   "a": 2,\n+   "a": 1,',
    },
  ]);
});

test('skipped tests, files that cannot be loaded and errors in hooks count as failures', async () => {
  const { passed, failures } = await run({
    'hooks.test.ts': `
      test.skip('left out', () => {});
      describe('first', () => {
        beforeAll(() => { throw new Error('cannot begin'); });
        test('never', () => {});
      });
      describe('last', () => {
        afterAll(() => { throw new Error('cannot end'); });
        test('well', () => {});
      });`,
    'unloaded.test.ts': `throw new Error('no module');`,
  });
  expect(passed).toBe(1);
  expect(failures).toEqual([
    { name: 'first', what: 'cannot begin' },
    { name: 'last', what: 'cannot end' },
    { name: 'unloaded.test.ts', what: 'no module' },
    { name: 'hooks.test.ts: left out', what: 'was skipped' },
    { name: 'hooks.test.ts: first > never', what: 'was skipped' },
  ]);
});

test('a run without tests and a run without results count as failures', async () => {
  expect(await run({})).toEqual({ passed: 0, failures: [{ name: 'all', what: 'there were no tests' }] });
  rmSync(results());
  expect(await count('unit', results())).toEqual({
    what: 'unit',
    passed: 0,
    failures: [{ name: 'all', what: 'the run has left no results' }],
  });
});

test('the progress reports each failure once, and then its file', async () => {
  const file = join(folder, 'progress');
  await run(
    {
      'a.test.ts': `
        test('good', () => {});
        test('bad', () => expect(1).toBe(2));
        describe('none', () => {
          beforeAll(() => { throw new Error('cannot begin'); });
          test('never', () => {});
        });`,
      'b.test.ts': `test('good', () => {});`,
    },
    '--no-file-parallelism',
    `--outputFile.progress=${file}`,
  );
  const progress = readFileSync(file, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => progressText(JSON.parse(line) as Progress));
  const [first, second] = progress.filter((line) => line.endsWith(' files)'));
  expect(first).toMatch(/^[ab]\.test\.ts: .* \(1 of 2 files\)$/);
  expect(second).toMatch(/^[ab]\.test\.ts: .* \(2 of 2 files\)$/);
  expect([first, second].map((line) => line?.replace(/ \(.*/, '')).toSorted()).toEqual([
    'a.test.ts: 1 passed, 3 failed',
    'b.test.ts: 1 passed',
  ]);
  const failures = progress.filter((line) => line.startsWith('FAILED'));
  expect(failures).toEqual([
    'FAILED a.test.ts: bad: expected 1 to be 2 // Object.is equality',
    'FAILED none: cannot begin',
    'FAILED a.test.ts: none > never: was skipped',
  ]);
  const end = progress.findIndex((line) => line.startsWith('a.test.ts'));
  expect(progress.findLastIndex((line) => line.startsWith('FAILED'))).toBe(end - 1);
});

test('tests that do not match the test name pattern are not part of the run', async () => {
  const files = {
    'some.test.ts': `
      describe('of two', () => { test('this', () => {}); test('that', () => {}); });
      test.skip('of two this is left out', () => {});`,
  };
  expect(await run(files, '--testNamePattern=two > that')).toEqual({ passed: 1, failures: [] });
  expect(await run(files, '--testNamePattern=two (> )?this')).toEqual({
    passed: 1,
    failures: [{ name: 'some.test.ts: of two this is left out', what: 'was skipped' }],
  });
  expect(await run(files, '--testNamePattern=no such')).toEqual({ passed: 0, failures: [] });
});

test('the report ends with the failures and then the counts', () => {
  const output = vi.spyOn(process.stdout, 'write').mockReturnValue(true);
  const lines: string[] = [];
  const bad = { name: 'a.test.ts: bad', what: 'expected 1 to be 2\n- 2\n+ 1' };
  const outcomes = [
    { what: 'with runc', passed: 3, failures: [] },
    { what: 'with crun', passed: 2, failures: [bad] },
  ];
  try {
    expect(report('matrix', outcomes, (text) => lines.push(text))).toBe(1);
    expect(report('matrix', outcomes.slice(0, 1), (text) => lines.push(text))).toBe(0);
    expect(output.mock.calls.map(([text]) => text)).toEqual([
      'FAILED with crun: a.test.ts: bad\n    expected 1 to be 2\n    - 2\n    + 1\n',
      'matrix: 5 passed, 1 failed\n',
      'matrix: 3 passed, 0 failed\n',
    ]);
  } finally {
    output.mockRestore();
  }
  expect(lines).toEqual([
    'with runc: 3 passed, 0 failed',
    'with crun: 2 passed, 1 failed',
    'with runc: 3 passed, 0 failed',
  ]);
});
