import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Stage, Suite } from './stages.ts';
import { isOnRequest, nightlyTable, quickStages, stages, stagesOf, suites } from './stages.ts';
import { State } from './state.ts';

const namesOf = (names: readonly string[]): readonly string[] => stagesOf(names).map(({ name }) => name);

test('each stage has a unique name, and each suite that tests the shim has a stage', () => {
  const all = [...new Set([...stages, ...quickStages])];
  expect(new Set(all.map(({ name }) => name)).size).toBe(all.length);
  const onRequest = (Object.keys(suites) as Suite[]).filter(isOnRequest);
  expect(onRequest).toEqual(['signatures', 'record-load']);
});

test('the program of each suite is built or in the repository', () => {
  const build = readFileSync('tools/build.mjs', 'utf8');
  for (const [program = ''] of Object.values(suites)) {
    const [, tool] = /^dist\/(tools\/.*)\.js$/.exec(program) ?? [];
    expect(tool === undefined ? existsSync(program) : build.includes(`'${tool}':`), program).toBe(true);
  }
});

test('--only takes names of stages and of suites', () => {
  expect(namesOf(['crash'])).toEqual(['crash', 'crash-systemd']);
  expect(namesOf(['crash-systemd', 'speed'])).toEqual(['speed', 'crash-systemd']);
  expect(namesOf(['conformance'])).toEqual(['conformance']);
  expect(namesOf(['fuzz'])).toEqual(['fuzz']);
});

test('--only with an unknown name is an error that lists the stages', () => {
  expect(() => stagesOf(['crash', 'crush'])).toThrow(
    /^no stage or suite "crush": expected speed, e2e, .*crash-systemd.*signatures/,
  );
  expect(() => stagesOf(['crash', 'signatures'])).toThrow('the suite signatures is no stage: name it alone');
});

describe('state of a run', () => {
  let folder: string;
  let file: string;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'nightly-'));
    file = join(folder, 'of/results.json');
  });

  afterEach(() => rmSync(folder, { recursive: true }));

  const result = (failed: number) => ({ passed: 3, failed, seconds: 60, date: '2026-11-23' });

  test('a continued run knows which stages have passed at its commit, and runs failed ones again', () => {
    const first = State.read(file, 'abc');
    first.add('crash', result(0));
    first.add('soak', result(1));
    const second = State.read(file, 'abc');
    expect(['crash', 'soak', 'fuzz'].map((name) => second.hasPassed(name))).toEqual([true, false, false]);
    expect(existsSync(`${file}.new`)).toBe(false);
  });

  test('results of another commit do not count', () => {
    State.read(file, 'abc').add('crash', result(0));
    const other = State.read(file, 'def');
    expect(other.hasPassed('crash')).toBe(false);
    other.add('soak', result(0));
    expect(State.read(file, 'def').results).toEqual({ soak: result(0) });
  });

  test('a file that has no results is not overwritten', () => {
    writeFileSync(join(folder, 'notes'), 'mine');
    expect(() => State.read(join(folder, 'notes'), 'abc')).toThrow(
      `${join(folder, 'notes')} is no file of nightly results`,
    );
    expect(readFileSync(join(folder, 'notes'), 'utf8')).toBe('mine');
  });
});

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
