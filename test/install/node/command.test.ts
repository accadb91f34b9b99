import { existsSync, readFileSync, statSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { commandText, planCommand, removingCommand } from '../../../src/install/node/command.ts';
import { type Program } from '../../../src/install/host/programs.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

let fake: FakeInstallNode;
beforeEach(() => (fake = new FakeInstallNode()));
afterEach(() => fake.remove());

test('resizectl in PATH is written and removed if it belongs to the shim, and left alone otherwise', async () => {
  const command = fake.at('bin/resizectl');
  const program: Program = { kind: 'folder', folder: '/from', node: "/opt/it's/node", arch: 'x64' };
  const text = commandText(program, '/to');
  expect(text).toMatch(/^exec '\/opt\/it'\\''s\/node' '\/to\/dist\/resizectl.js' "\$@"$/m);
  expect(commandText({ kind: 'executable', file: '/from' }, '/to')).toMatch(/^exec '\/to\/bin\/resizectl' "\$@"$/m);

  const place = fake.site({ program, to: '/to' });
  const [write] = (await planCommand(place)).changes;
  await write!.do();
  expect([readFileSync(command, 'utf8'), statSync(command).mode & 0o777]).toEqual([text, 0o755]);
  expect((await planCommand(place)).changes).toEqual([]);
  // The command of a program elsewhere has another content.
  expect((await planCommand({ ...place, to: '/elsewhere' })).changes).toHaveLength(1);
  await (await removingCommand(place))[0]!.do();
  expect(existsSync(command)).toBe(false);

  fake.put('bin/resizectl', '#!/bin/sh\necho mine\n');
  expect(await planCommand(place)).toEqual({
    changes: [],
    already: [`${command} does not belong to cri-resize-shim and is kept`],
  });
  expect(await removingCommand(place)).toEqual([]);
});
