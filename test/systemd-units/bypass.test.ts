import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { noLog } from '../../src/core/observe/interfaces.ts';
import { bypassTarget, writeBypassTarget } from '../../src/core/systemd/bypass.ts';

// Runs the script of cri-resize-shim-bypass.service with a proxy that only says its arguments.
// test/e2e/systemd/bypass.test.ts runs it under systemd.

const DEFAULT = '/run/k3s/containerd/containerd.sock';
let folder: string;
let file: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'bypass-'));
  file = join(folder, 'target');
});
afterEach(() => rmSync(folder, { recursive: true }));

/** The script as systemd passes it to the shell. */
function script(): string {
  const unit = readFileSync('systemd/cri-resize-shim-bypass.service', 'utf8');
  const [, text] = /^ExecStart=\/usr\/bin\/env \/bin\/sh -c '((?:[^']|\n)*)'$/m.exec(unit)!;
  return text!
    .replaceAll('\\\n', ' ')
    .replaceAll('\\\\', '\\')
    .replaceAll('$$', () => '$')
    .replaceAll('%%', '%');
}

/** Returns the socket to which the proxy leads. */
async function target(): Promise<string> {
  const proxy = join(folder, 'proxy');
  writeFileSync(proxy, '#!/bin/sh\nprintf "%s|" "$@"\n');
  chmodSync(proxy, 0o755);
  const text = script()
    .replaceAll('/var/lib/cri-resize-shim-bypass/target', file)
    .replaceAll('/usr/lib/systemd/systemd-socket-proxyd', proxy);
  const env = { CRI_RESIZE_SHIM_BYPASS_TO: DEFAULT };
  const { stdout } = await execa('/bin/sh', ['-c', text], { env });
  const [, socket] = /^--connections-max=4096\|(.*)\|$/.exec(stdout)!;
  return socket!;
}

test.each(['/run/containerd/containerd.sock', '/run/a "b"/$c\\d`.sock', '/run/  two  spaces\\'])(
  'the bypass leads to %s if the shim has written this target',
  async (socket) => {
    await writeBypassTarget(file, socket, noLog);
    expect([await target(), await bypassTarget(file)]).toEqual([socket, socket]);
  },
);

test('the bypass leads to the socket of the installation if there is no target file', async () => {
  expect(await target()).toBe(DEFAULT);
});

const NAME = 'CRI_RESIZE_SHIM_BYPASS_TO=';
test.each([
  '',
  '\0'.repeat(70_000),
  'something else\n',
  'LD_PRELOAD=/nowhere.so\nPATH=/nowhere\n',
  `${NAME}\n`,
  `${NAME}""\n`,
  `${NAME}"relative.sock"\n`,
  `${NAME}"/run/containerd/contai`,
  `${NAME}"/run/containerd/containerd.sock"`,
  `${NAME}"/run/cont\0\0\0\0\0\0\0\0`,
])('the bypass leads to the socket of the installation if its target file has the content %j', async (text) => {
  writeFileSync(file, text);
  expect([await target(), await bypassTarget(file)]).toEqual([DEFAULT, undefined]);
});
