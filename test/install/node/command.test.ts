import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { commandText, planCommand, removingCommand } from '../../../src/install/node/command.ts';
import { type Program } from '../../../src/install/host/programs.ts';
import type { Site } from '../../../src/install/host/site.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

let fake: FakeInstallNode;
beforeEach(() => (fake = new FakeInstallNode()));
afterEach(() => fake.remove());

const at = (name: string): string => join(fake.folder, name);
const site = (change: Partial<Site> = {}): Site => ({
  node: fake.node,
  program: { kind: 'folder', folder: at('from'), node: '/opt/node/bin/node', arch: 'x64' },
  ...{ to: at('to'), unitFolder: at('units'), configFile: at('etc/config.yaml'), configText: '# all defaults\n' },
  isConfigGiven: false,
  flagsFile: at('etc/flags'),
  commandFile: at('bin/resizectl'),
  wait: { timeoutMs: 1000, signal: new AbortController().signal },
  ...change,
});

test('resizectl in PATH is written and removed if it belongs to the shim, and left alone otherwise', async () => {
  const command = at('bin/resizectl');
  const program: Program = { kind: 'folder', folder: '/from', node: "/opt/it's/node", arch: 'x64' };
  const text = commandText(program, '/to');
  expect(text).toMatch(/^exec '\/opt\/it'\\''s\/node' '\/to\/dist\/resizectl.js' "\$@"$/m);
  expect(commandText({ kind: 'executable', file: '/from' }, '/to')).toMatch(/^exec '\/to\/bin\/resizectl' "\$@"$/m);

  const place = site({ program, to: '/to' });
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
