import { globSync, readdirSync } from 'node:fs';
import { join, matchesGlob, resolve } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import config from '../../vitest.config.ts';
import { excludedAsIndependent, excludedOf, excludedOfMain, inOrder, usualReleases } from './releases.ts';
import { countsIn, markdownTable, withTable } from './results-reporter.ts';
import {
  ALL_UNDER_SYSTEMD,
  LONG,
  MAIN,
  OTHER_SUITES,
  parseArguments,
  selectFiles,
  TOPICS,
  titlePattern,
  USUAL,
  WITH_EITHER_DRIVER,
} from './selection.ts';
import { endingSignal, repeating } from './vitest-run.ts';

const root = resolve('.');
const nothing = { unit: [], speed: [], plain: [], systemd: [], installing: [], needsExecutable: false };

describe('selected test files', () => {
  test('selected test files run in the node that they need, each once', () => {
    const words = [
      './test/e2e/resize/resize.test.ts',
      join(root, 'test/e2e/resize/resize.test.ts'),
      'test/e2e/systemd/units.test.ts',
      'test/e2e/foresight/foresight.test.ts',
      'test/runner/selection.test.ts',
      'test/cgroups/values/settings.speed.test.ts',
    ];
    expect(selectFiles(words, root)).toEqual({
      ...nothing,
      unit: ['test/runner/selection.test.ts'],
      speed: ['test/cgroups/values/settings.speed.test.ts'],
      plain: ['test/e2e/resize/resize.test.ts', 'test/e2e/foresight/foresight.test.ts'],
      systemd: ['test/e2e/systemd/units.test.ts', 'test/e2e/foresight/foresight.test.ts'],
    });
  });

  test('selected test files need the executable if they install it', () => {
    const file = 'test/e2e/install/executable.test.ts';
    expect(selectFiles([file], root)).toEqual({ ...nothing, installing: [file], needsExecutable: true });
    const unit = 'test/tools/packaging/executable.test.ts';
    expect(selectFiles([unit], root)).toEqual({ ...nothing, unit: [unit], needsExecutable: true });
  });

  test.each([
    ['systemd', USUAL],
    ['long', LONG],
  ])('selected test files of the suite %s run in a node with systemd', (_, { systemd, installing }) => {
    expect(selectFiles([...systemd, ...installing], root)).toEqual({
      ...nothing,
      systemd,
      installing,
      needsExecutable: true,
    });
  });

  test.each([
    ['test/e2e/no-such.test.ts', 'test/e2e/no-such.test.ts does not exist'],
    ['test/e2e', 'test/e2e is not a test file: expected a path like test/e2e/resize/resize.test.ts'],
    ['src/main.ts', 'src/main.ts is not a test file: expected a path like test/e2e/resize/resize.test.ts'],
    [
      'test/matrix/matrix.test.ts',
      'test/matrix/matrix.test.ts is not run by npm test: use npm run nightly -- --only matrix -- --containerd 2.1 --runtime runc',
    ],
    [
      'test/crash/crash.test.ts',
      'test/crash/crash.test.ts is not run by npm test: use npm run nightly -- --only crash -- --containerd 2.1',
    ],
    [
      'test/real-kubelet/kubelet.test.ts',
      'test/real-kubelet/kubelet.test.ts is not run by npm test: use npm run nightly -- --only kubelet -- --containerd 2.1',
    ],
  ])('rejects %s as a selected test file', (file, message) => {
    expect(() => selectFiles(['test/e2e/resize/resize.test.ts', file], root)).toThrow(message);
  });
});

test('the lists of selection.ts name existing files and all projects that npm test does not run', () => {
  const present = readdirSync('test', { recursive: true, encoding: 'utf8' }).map((name) => join('test', name));
  for (const file of [...MAIN, ...ALL_UNDER_SYSTEMD, ...WITH_EITHER_DRIVER]) expect(present).toContain(file);
  const projects = (config.test?.projects ?? []).map((project) => (project as { test: Project }).test);
  const others = projects
    .filter(({ name }) => !['unit', 'speed', 'e2e'].includes(name))
    .flatMap(({ include }) => include);
  expect(others).toHaveLength(OTHER_SUITES.length);
  for (const pattern of others)
    expect(
      OTHER_SUITES.filter(({ files }) => files.test(pattern.replace('*', 'some'))),
      pattern,
    ).toHaveLength(1);
});

test('each topic of a test group is a folder of test/e2e and occurs only once', () => {
  const topics = TOPICS.flat();
  expect(new Set(topics).size).toBe(topics.length);
  expect(readdirSync('test/e2e')).toEqual(expect.arrayContaining(topics));
});

interface Project {
  readonly name: string;
  readonly include: readonly string[];
}

describe('releases after --containerd', () => {
  test('releases after --containerd can be followed by files', () => {
    expect(parseArguments([], ['2.1', '1.7', 'test/e2e/resize/resize.test.ts'])).toEqual({
      files: ['test/e2e/resize/resize.test.ts'],
      containerd: ['2.1', '1.7'],
    });
    expect(parseArguments(['a.test.ts'], undefined)).toEqual({ files: ['a.test.ts'], containerd: undefined });
  });

  test('unknown releases after --containerd are rejected', () => {
    expect(() => parseArguments([], ['2.1', '9.9'])).toThrow('invalid --containerd "9.9": expected one of ');
    expect(() => parseArguments([], ['a.test.ts'])).toThrow('invalid --containerd "a.test.ts": expected one of ');
  });
});

test('the pattern of a title matches it literally, also with its suites as in the name of a failure', () => {
  const pattern = new RegExp(titlePattern('resize > deferred (4): "a.b"'));
  expect(pattern.test('resizectl resize deferred (4): "a.b" is seen')).toBe(true);
  expect(pattern.test('resize > deferred (4): "a.b"')).toBe(true);
  expect(pattern.test('resize deferred (4): "axb"')).toBe(false);
});

test.each([
  ['the last line counts', 'tests: 1 passed, 1 failed\nmore\n3 passed, 0 failed\n', 0, { passed: 3, failed: 0 }],
  ['a name and the time may precede', 'crash:   7 s  all: 12 passed, 2 failed', 1, { passed: 12, failed: 2 }],
  ['a failing exit code counts as a failure', '3 passed, 0 failed', 70, { passed: 3, failed: 1 }],
  ['no line counts as a failure', 'ended', 0, { passed: 0, failed: 1 }],
  ['no exit code, after a signal, counts as a failure', '3 passed, 0 failed', undefined, { passed: 3, failed: 1 }],
])('reads the counts of a command from its output: %s', (_, output, code, counts) => {
  expect(countsIn(output, code)).toEqual(counts);
});

test('the first row is the head of the table', () => {
  expect(
    markdownTable([
      ['call', 'time'],
      ['read', '1 ms'],
    ]),
  ).toBe('| call | time |\n| --- | --- |\n| read | 1 ms |');
});

test('replaces only the text between the marks of the command', () => {
  const page = 'before\n<!-- npm run a: begin -->\n\nold\n\n<!-- npm run a: end -->\nafter\n';
  expect(withTable(page, 'npm run a', 'new')).toBe(page.replace('old', 'new'));
  expect(() => withTable(page, 'npm run b', 'new')).toThrow('the page lacks the marks <!-- npm run b: begin -->');
});

const files = globSync('test/e2e/**/*.test.ts');
const running = (excluded: readonly string[]): string[] =>
  files.filter((file) => !excluded.some((pattern) => matchesGlob(file, pattern)));

test('containerd of Debian replaces the long-term support release if no Go toolchain exists', () => {
  expect(usualReleases(true)).toEqual(['1.7', '2.3']);
  expect(usualReleases(false)).toEqual(['1.7', '2.1']);
});

test('every exclude pattern of a release matches a file', () => {
  for (const release of ['1.6', '1.7', '2.3'] as const)
    for (const pattern of excludedAsIndependent(release))
      expect(
        files.filter((file) => matchesGlob(file, pattern)),
        pattern,
      ).not.toEqual([]);
});

test('a release runs all possible files, only the files that depend on it, or all without the matrix', () => {
  expect(running(excludedOf('2.3'))).toEqual(expect.arrayContaining(running(excludedOfMain('2.3'))));
  expect(running(excludedAsIndependent('1.7'))).toContain('test/e2e/resize/resize.test.ts');
  expect(running(excludedAsIndependent('1.7'))).not.toContain('test/e2e/resize/container-events.test.ts');
  expect(running(excludedOfMain('2.3'))).toContain('test/e2e/resize/container-events.test.ts');
});

test('the suite e2e runs each file that needs no systemd on at least one release, except the matrix', () => {
  const run = [...running(excludedOfMain('2.3')), ...running(excludedAsIndependent('1.7'))];
  const possible = new Set([...running(excludedOf('1.7')), ...running(excludedOf('2.3'))]);
  expect([...possible].filter((file) => !run.includes(file))).toEqual(['test/e2e/resize/matrix.test.ts']);
});

test('releases are tested from old to new', () => {
  expect(inOrder(['2.3', '1.7'])).toEqual(['1.7', '2.3']);
});

describe('runs of vitest', () => {
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  const before = signals.map((signal) => [signal, process.listeners(signal)] as const);

  afterEach(() => {
    for (const [signal, listeners] of before)
      for (const listener of process.listeners(signal))
        if (!listeners.includes(listener)) process.off(signal, listener);
  });

  test('a command keeps its signal listeners after a signal, so that execa does not end the process first', () => {
    const counts = signals.map((signal) => process.listenerCount(signal) + 1);
    const ending = endingSignal();
    expect(ending.aborted).toBe(false);
    process.emit('SIGHUP');
    expect(ending.aborted).toBe(true);
    expect(signals.map((signal) => process.listenerCount(signal))).toEqual(counts);
  });

  test('a failure reports the npm test command that runs its file again on the same node', () => {
    const name = 'test/e2e/resize/resize.test.ts: a pod > is resized';
    expect(repeating(name, '--containerd 2.3 --runtime crun')).toBe(
      'npm test -- test/e2e/resize/resize.test.ts --containerd 2.3 --runtime crun',
    );
    expect(repeating('test/main.test.ts: a shim starts', '')).toBe('npm test -- test/main.test.ts');
    expect(repeating('test/crash/crash.test.ts: a kill', undefined)).toBeUndefined();
    expect(repeating('outside of all tests', '')).toBeUndefined();
  });
});
