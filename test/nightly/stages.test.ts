import { existsSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { type Suite, isOnRequest, quickStages, stages, stagesOf, suites } from './stages.ts';

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
