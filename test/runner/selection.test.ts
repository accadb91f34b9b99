import { readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, test } from 'vitest';
import config from '../../vitest.config.ts';
import {
  ALL_UNDER_SYSTEMD,
  LONG,
  MAIN,
  OTHER_SUITES,
  TOPICS,
  USUAL,
  WITH_EITHER_DRIVER,
  parseArguments,
  selectFiles,
  titlePattern,
} from './selection.ts';

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
      'test/container/entry.speed.test.ts',
    ];
    expect(selectFiles(words, root)).toEqual({
      ...nothing,
      unit: ['test/runner/selection.test.ts'],
      speed: ['test/container/entry.speed.test.ts'],
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

test('the groups of topics name folders of end-to-end tests, each once', () => {
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
