import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { environmentFilesOf, readEnvironment } from '../../../src/install/kubelet/kubelet.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

let fake: FakeInstallNode;
beforeEach(() => {
  fake = new FakeInstallNode();
  fake.put('envs/b.env', 'A=b\n');
  fake.put('envs/B.env', 'A=B\n');
  fake.put('envs/.hidden.env', 'A=hidden\n');
  mkdirSync(fake.at('envs/folder'));
  writeFileSync(fake.at('envs/latin1'), Buffer.from('A=\u00e4\n', 'latin1'));
});
afterEach(() => fake.remove());

const entry = (name: string, ignores = 'no'): string => `${fake.at(name)} (ignore_errors=${ignores})`;

test('a pattern expands to its files in byte order, and an optional pattern may match no file', async () => {
  const files = await environmentFilesOf(['', entry('envs/*.env', 'yes'), entry('none/*', 'yes'), entry('none')]);
  expect(files).toEqual([
    { file: fake.at('envs/B.env'), isOptional: true },
    { file: fake.at('envs/b.env'), isOptional: true },
    { file: fake.at('none'), isOptional: false },
  ]);
  expect(await readEnvironment([entry('envs/*.env'), entry('none', 'yes')])).toEqual(['A=B\n', 'A=b\n']);
});

test.each([
  ['none', 'does not exist'],
  ['none/*.env', 'does not exist'],
  ['envs/folder', 'is not a regular file'],
  ['envs/latin1', 'the value of A is not valid UTF-8'],
])('a unit with the unusable environment file %s starts only if the file is optional', async (name, why) => {
  const file = fake.at(name);
  expect(await readEnvironment([entry('envs/b.env'), entry(name)])).toEqual({
    file,
    problem: `${file}${why.startsWith('the ') ? ': ' : ' '}${why}`,
  });
  expect(await readEnvironment([entry('envs/b.env'), entry(name, 'yes')])).toEqual(['A=b\n']);
});

test('a unit starts if an environment file has a comment with invalid UTF-8 or is a link to /dev/null', async () => {
  writeFileSync(fake.at('envs/comment'), Buffer.from('# gr\u00fcn\nA=\n', 'latin1'));
  symlinkSync('/dev/null', fake.at('envs/empty'));
  expect(await readEnvironment([entry('envs/comment'), entry('envs/empty'), '/dev/null (ignore_errors=no)'])).toEqual([
    '# gr\ufffdn\nA=\n',
    '',
    '',
  ]);
});
