import { existsSync, readFileSync, statSync } from 'node:fs';
import { execa } from 'execa';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { commandText, planCommand, removingCommand } from '../../../src/install/node/install.ts';
import { linesBack } from '../../../src/install/node/way-back.ts';
import type { Program } from '../../../src/install/host/programs.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

let fake: FakeInstallNode;
beforeEach(() => (fake = new FakeInstallNode()));
afterEach(() => fake.remove());

test('install: resizectl is put into PATH and removed again if it belongs to the shim; a file of another program stays', async () => {
  const command = fake.at('bin/resizectl');
  const program: Program = { kind: 'folder', folder: '/from', node: "/opt/it's/node", arch: 'x64' };
  const text = commandText(program, '/to', ['first line', 'last line']);
  expect(text).toMatch(/^exec '\/opt\/it'\\''s\/node' '\/to\/dist\/resizectl.js' "\$@"$/m);
  expect(commandText({ kind: 'executable', file: '/from' }, '/to', [])).toMatch(/^exec '\/to\/bin\/resizectl' "\$@"$/m);

  const place = fake.site({ program, to: '/to' });
  const [write] = (await planCommand(place)).changes;
  await write!.do();
  const written = commandText(program, '/to', linesBack(place.node));
  expect([readFileSync(command, 'utf8'), statSync(command).mode & 0o777]).toEqual([written, 0o755]);
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

test('resizectl prints shell commands that restore the node if its own Node is gone', async () => {
  const program: Program = { kind: 'folder', folder: '/from', node: fake.at('gone/node'), arch: 'x64' };
  fake.put('bin/resizectl', commandText(program, '/to', ['sed -i \'s|a|b|\' "$file"']));
  const { exitCode, stderr } = await execa('sh', [fake.at('bin/resizectl'), 'uninstall'], { reject: false });
  expect(exitCode).toBe(127);
  expect(stderr).toContain('systemctl start cri-resize-shim-bypass.service');
  expect(stderr).toContain(`\n  sed -i 's|a|b|' "$file"`);
});
