import { chmodSync, existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { commandText, planCommand, removingCommand } from '../../../src/install/node/command.ts';
import { planInstall, planUninstall, unitText } from '../../../src/install/node/install.ts';
import { copyProgram, isInPlace } from '../../../src/install/node/program.ts';
import { type Program, nodeProgramOf } from '../../../src/install/host/programs.ts';
import type { Site } from '../../../src/install/host/site.ts';
import { FakeInstallNode } from '../../support/fake-install-node.ts';

// What is planned; what comes of it is in test/e2e/install/install.test.ts.
let paper: FakeInstallNode;
beforeEach(() => (paper = new FakeInstallNode()));
afterEach(() => paper.remove());

const at = (name: string): string => join(paper.folder, name);
const site = (change: Partial<Site> = {}): Site => ({
  node: paper.node,
  program: { kind: 'folder', folder: at('from'), node: '/opt/node/bin/node', arch: 'x64' },
  ...{ to: at('to'), unitFolder: at('units'), configFile: at('etc/config.yaml'), configText: '# all defaults\n' },
  isConfigGiven: false,
  flagsFile: at('etc/flags'),
  commandFile: at('bin/resizectl'),
  wait: { timeoutMs: 1000, signal: new AbortController().signal },
  ...change,
});

/** kubelet runs by a configuration with this endpoint; of the shim's units systemd says the same thing. */
function node(endpoint: string, units = 'ActiveState=inactive\nUnitFileState=disabled'): void {
  paper.put(
    'bin/systemctl',
    `#!/bin/sh
case "$*" in
*LoadState*) printf 'LoadState=loaded\\nActiveState=active\\nMainPID=42\\n' ;;
*UnitFileState*) printf '${units.replaceAll('\n', '\\n')}\\n' ;;
*) exit 9 ;;
esac
`,
  );
  chmodSync(at('bin/systemctl'), 0o755);
  const text = `kind: KubeletConfiguration\ncontainerRuntimeEndpoint: ${endpoint}\n`;
  for (const root of ['', `proc/42/root/${paper.folder}/`]) paper.put(`${root}kubelet.yaml`, text);
  paper.put('proc/42/cmdline', ['kubelet', `--config=${at('kubelet.yaml')}`].map((word) => `${word}\0`).join(''));
}

const says = async (plan: ReturnType<typeof planInstall>): Promise<readonly string[]> =>
  (await plan).changes.map((change) => change.description);

test('of a package the program and the units are left alone', async () => {
  node(`unix://${paper.node.containerd}`);
  paper.put('from/dist/resizectl.js', '');
  const plan = planInstall(site());
  expect(await says(plan)).toEqual([
    `write ${at('etc/config.yaml')}`,
    `write ${at('etc/flags')}`,
    expect.stringMatching(/^enable and start cri-resize-shim.service, /),
    expect.stringContaining(`set unix://${paper.node.listen} in ${at('kubelet.yaml')}`),
  ]);
  expect((await plan).already).toEqual([`the program at ${at('from')} and its units belong to a package`]);
});

test('a kubelet that has another runtime is not taken from it', async () => {
  node('unix:///run/other/containerd.sock');
  await expect(planInstall(site())).rejects.toMatchObject({
    name: 'Refusal',
    message: `kubelet uses unix:///run/other/containerd.sock, but the shim would use unix://${paper.node.containerd}`,
    remedy: `write "containerRuntimeEndpoint: unix:///run/other/containerd.sock" to ${at('etc/config.yaml')}, and try again`,
  });
});

test('without systemd, or with a kubelet that does not run, nothing is planned', async () => {
  const elsewhere = { ...paper.node, systemdFolder: '/nowhere' };
  await expect(planInstall(site({ node: elsewhere }))).rejects.toThrow('systemd is not the init system of this node');
  paper.unit({ state: 'failed' });
  await expect(planInstall(site())).rejects.toThrow('kubelet.service is failed');
  paper.unit(undefined);
  await expect(planInstall(site())).rejects.toThrow('no unit kubelet.service');
});

test('resizectl in PATH is ours to write and to take away, and nobody else’s', async () => {
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
  // Another program takes its place.
  expect((await planCommand({ ...place, to: '/elsewhere' })).changes).toHaveLength(1);
  await (await removingCommand(place))[0]!.do();
  expect(existsSync(command)).toBe(false);

  paper.put('bin/resizectl', '#!/bin/sh\necho mine\n');
  expect(await planCommand(place)).toEqual({
    changes: [],
    already: [`${command} does not belong to cri-resize-shim and is kept`],
  });
  expect(await removingCommand(place)).toEqual([]);
});

test('uninstalling begins with kubelet and ends with the program', async () => {
  node(`unix://${paper.node.listen}`, 'ActiveState=active\nUnitFileState=enabled');
  paper.put('units/cri-resize-shim.service', '');
  paper.put('to/dist/resizectl.js', '');
  expect(await says(planUninstall(site()))).toEqual([
    expect.stringContaining(`set unix://${paper.node.containerd} in ${at('kubelet.yaml')}`),
    expect.stringMatching(/^stop and disable cri-resize-shim.service, /),
    `remove ${at('units/cri-resize-shim.service')}`,
    `remove ${at('to')}`,
  ]);
});

test('a configuration that is there stays, unless another one is given', async () => {
  node(`unix://${paper.node.containerd}`);
  paper.put('from/dist/resizectl.js', '');
  paper.put('etc/config.yaml', 'logLevel: debug\n');
  paper.put('etc/flags', '');
  const write = `write ${at('etc/config.yaml')}`;
  expect(await says(planInstall(site()))).not.toContain(write);
  expect(await says(planInstall(site({ configText: 'logLevel: warn\n', isConfigGiven: true })))).toContain(write);
  const same = planInstall(site({ configText: 'logLevel: debug\n', isConfigGiven: true }));
  expect(await says(same)).not.toContain(write);
});

test('a program that brings its own Node takes it along and is started with it', async () => {
  paper.put('from/dist/resizectl.js', '');
  const places = {
    program: { kind: 'folder', folder: at('from'), node: at('to/bin/node'), arch: 'x64' },
    to: at('to'),
  } as const;
  expect(nodeProgramOf(at('from'), at('to'))).toEqual({ node: process.execPath });
  const files = ['cri-resize-shim.js', 'resizectl.1', 'chunks/heap.js'].map((name) => `dist/${name}`);
  const koffi = ['package.json', 'LICENSE.txt', 'index.js', 'src/koffi/index.js', 'src/koffi/src/static.js'];
  const all = [
    ...['package.json', 'LICENSE', 'proto/a.proto', 'systemd/a.socket', 'bin/node', ...files],
    ...['node_modules/@koromix/koffi-linux-x64/koffi.node', ...koffi.map((name) => `node_modules/koffi/${name}`)],
  ];
  for (const file of all) paper.put(`from/${file}`, file);
  chmodSync(at('from/bin/node'), 0o755);
  expect(nodeProgramOf(at('from'), at('to'))).toEqual({ node: at('to/bin/node') });
  await copyProgram(places);
  expect(statSync(at('to/bin/node')).mode & 0o777).toBe(0o755);
  expect(await isInPlace(places)).toBe(true);
  // Of the same length.
  paper.put('to/bin/node', 'bin/n0de');
  expect(await isInPlace(places)).toBe(false);
});

test('a checkout takes along the Node that npm has installed into it, if that one runs here', () => {
  const pinned = at(`from/node_modules/node-linux-${process.arch}/bin/node`);
  expect(nodeProgramOf(at('from'), at('to'), pinned)).toEqual({ node: at('to/bin/node'), nodeFrom: pinned });
  expect(nodeProgramOf(at('from'), at('to'), '/usr/bin/node')).toEqual({ node: '/usr/bin/node' });
});

test('units start the Node that runs here, or the single executable', () => {
  const shipped = 'ExecStart=/usr/bin/node /usr/local/lib/cri-resize-shim/dist/cri-resize-shim.js $FLAGS\n';
  const text = (program: Program): string => unitText(shipped, { program, to: '/usr/local/lib/cri-resize-shim' });
  const by = (node: string): string => text({ kind: 'folder', folder: '/anywhere', node, arch: 'x64' });
  expect(by('/usr/bin/node')).toBe(shipped);
  expect(by('/opt/node 20%/node')).toBe(shipped.replace('/usr/bin/node', '"/opt/node 20%%/node"'));
  const start = 'ExecStart=/usr/local/lib/cri-resize-shim/bin/cri-resize-shim $FLAGS\n';
  expect(text({ kind: 'executable', file: '/root/cri-resize-shim-single' })).toBe(start);
});
