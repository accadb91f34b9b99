import { afterEach, beforeEach, expect, test } from 'vitest';
import { checkInstallation } from '../../../src/install/node/program.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

let fake: FakeInstallNode;
beforeEach(() => (fake = new FakeInstallNode()));
afterEach(() => fake.remove());

const PROGRAM_FOLDER = 'package.json';
const EXECUTABLE = 'bin/cri-resize-shim';

test.each([
  [[], 'ok', 'none'],
  [[`own/${PROGRAM_FOLDER}`], 'ok', 'own'],
  [[`own/${EXECUTABLE}`], 'ok', 'own'],
  [[`package/${PROGRAM_FOLDER}`], 'ok', 'package at '],
  [[`package/${PROGRAM_FOLDER}`, `own/${PROGRAM_FOLDER}`], 'warning', 'two: '],
  [[`package/${PROGRAM_FOLDER}`, `own/${EXECUTABLE}`], 'warning', 'two: '],
])('check installation with the files %j is %s: %s', async (files, result, found) => {
  for (const file of files) fake.put(file, '');
  expect(await checkInstallation({ package: fake.at('package'), own: fake.at('own') })).toMatchObject({
    ...{ check: 'installation', result },
    found: expect.stringContaining(found) as string,
  });
});
