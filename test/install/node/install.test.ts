import { chmodSync, mkdirSync, symlinkSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { planInstall, planUninstall, unitText } from '../../../src/install/node/install.ts';
import { type Program } from '../../../src/install/host/programs.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

// Tests the plan. test/e2e/install/install.test.ts carries it out.
let fake: FakeInstallNode;
beforeEach(() => (fake = new FakeInstallNode()));
afterEach(() => fake.remove());

/** Fakes a kubelet whose configuration has this endpoint, and systemd's properties of each of the shim's units. */
function node(endpoint: string, units = 'ActiveState=inactive\nUnitFileState=disabled', fragment = ''): void {
  fake.put(
    'bin/systemctl',
    `#!/bin/sh
case "$*" in
*LoadState*) printf 'LoadState=loaded\\nActiveState=active\\nMainPID=42\\n' ;;
*UnitFileState*) printf '${units.replaceAll('\n', '\\n')}\\n' ;;
*FragmentPath*) echo 'FragmentPath=${fragment}' ;;
*) exit 9 ;;
esac
`,
  );
  chmodSync(fake.at('bin/systemctl'), 0o755);
  const text = `kind: KubeletConfiguration\ncontainerRuntimeEndpoint: ${endpoint}\n`;
  for (const root of ['', `proc/42/root/${fake.folder}/`]) fake.put(`${root}kubelet.yaml`, text);
  fake.put('proc/42/cmdline', ['kubelet', `--config=${fake.at('kubelet.yaml')}`].map((word) => `${word}\0`).join(''));
}

const textsOf = async (plan: ReturnType<typeof planInstall>): Promise<readonly string[]> =>
  (await plan).changes.map((change) => change.description);

test('installing does not touch program and units of a package', async () => {
  node(`unix://${fake.node.containerd}`);
  fake.put('from/dist/resizectl.js', '');
  const plan = planInstall(fake.site());
  expect(await textsOf(plan)).toEqual([
    `write ${fake.at('etc/config.yaml')}`,
    `write ${fake.at('etc/flags')}`,
    expect.stringMatching(/^enable and start cri-resize-shim.service, /),
    expect.stringContaining(`set unix://${fake.node.listen} in ${fake.at('kubelet.yaml')}`),
  ]);
  expect((await plan).already).toEqual([`the program at ${fake.at('from')} and its units belong to a package`]);
});

test('installing is rejected if kubelet uses another runtime', async () => {
  node('unix:///run/other/containerd.sock');
  await expect(planInstall(fake.site())).rejects.toMatchObject({
    name: 'Refusal',
    message: `kubelet uses unix:///run/other/containerd.sock, but the shim would use unix://${fake.node.containerd}`,
    remedy: `write "containerRuntimeEndpoint: unix:///run/other/containerd.sock" to ${fake.at('etc/config.yaml')}, and try again`,
  });
});

test('installing is rejected while the bypass is switched on by hand', async () => {
  node(`unix://${fake.node.containerd}`);
  mkdirSync(fake.at('units/cri-resize-shim.socket.wants'), { recursive: true });
  symlinkSync('/nowhere', fake.at('units/cri-resize-shim.socket.wants/cri-resize-shim-bypass.service'));
  await expect(planInstall(fake.site())).rejects.toMatchObject({
    name: 'Refusal',
    remedy: 'run resizectl bypass off first',
  });
});

test('installing is rejected without systemd and without a running kubelet', async () => {
  const elsewhere = { ...fake.node, systemdFolder: '/nowhere' };
  await expect(planInstall(fake.site({ node: elsewhere }))).rejects.toThrow(
    'systemd is not the init system of this node',
  );
  fake.unit({ state: 'failed' });
  await expect(planInstall(fake.site())).rejects.toThrow('kubelet.service is failed');
  fake.unit(undefined);
  await expect(planInstall(fake.site())).rejects.toThrow('no unit kubelet.service');
});

test('uninstalling starts with kubelet and ends with the program', async () => {
  node(`unix://${fake.node.listen}`, 'ActiveState=active\nUnitFileState=enabled');
  fake.put('from/systemd/cri-resize-shim.service', '');
  fake.put('units/cri-resize-shim.service', '');
  fake.put('to/dist/resizectl.js', '');
  expect(await textsOf(planUninstall(fake.site()))).toEqual([
    expect.stringContaining(`set unix://${fake.node.containerd} in ${fake.at('kubelet.yaml')}`),
    expect.stringMatching(/^stop and disable cri-resize-shim.service, /),
    `remove ${fake.at('units/cri-resize-shim.service')}`,
    `remove ${fake.at('to')}`,
  ]);
});

test('a package and an installation of resizectl leave each other alone', async () => {
  const [own, packaged] = [fake.at('units/cri-resize-shim.service'), '/usr/lib/systemd/system/cri-resize-shim.service'];
  const state = 'ActiveState=active\nUnitFileState=enabled';
  fake.put('units/cri-resize-shim.service', '');
  fake.put('to/dist/resizectl.js', '');
  // As resizectl of the package, whose folder has no units.
  node(`unix://${fake.node.listen}`, state, own);
  for (const plan of [planInstall, planUninstall])
    await expect(plan(fake.site())).rejects.toMatchObject({
      name: 'Refusal',
      message: `the units in ${fake.at('units')} belong to an installation of resizectl, not to the package`,
    });
  node(`unix://${fake.node.listen}`, state, packaged);
  expect(await textsOf(planUninstall(fake.site()))).toEqual([
    expect.stringContaining(`set unix://${fake.node.containerd} in `),
    expect.stringMatching(/^stop and disable cri-resize-shim.service, /),
  ]);
  // As any other.
  fake.put('from/systemd/cri-resize-shim.service', '');
  for (const plan of [planInstall, planUninstall])
    await expect(plan(fake.site())).rejects.toThrow('the units of the shim belong to a package');
});

test('installing keeps an existing configuration unless another one is given', async () => {
  node(`unix://${fake.node.containerd}`);
  fake.put('from/dist/resizectl.js', '');
  fake.put('etc/config.yaml', 'logLevel: debug\n');
  fake.put('etc/flags', '');
  const write = `write ${fake.at('etc/config.yaml')}`;
  expect(await textsOf(planInstall(fake.site()))).not.toContain(write);
  expect(await textsOf(planInstall(fake.site({ configText: 'logLevel: warn\n', isConfigGiven: true })))).toContain(
    write,
  );
  const same = planInstall(fake.site({ configText: 'logLevel: debug\n', isConfigGiven: true }));
  expect(await textsOf(same)).not.toContain(write);
});

test('units start the Node of the installation, or the single executable', () => {
  const shipped = 'ExecStart=/usr/bin/node /usr/local/lib/cri-resize-shim/dist/cri-resize-shim.js $FLAGS\n';
  const text = (program: Program): string => unitText(shipped, { program, to: '/usr/local/lib/cri-resize-shim' });
  const by = (node: string): string => text({ kind: 'folder', folder: '/anywhere', node, arch: 'x64' });
  expect(by('/usr/bin/node')).toBe(shipped);
  expect(by('/opt/node 20%/node')).toBe(shipped.replace('/usr/bin/node', '"/opt/node 20%%/node"'));
  const start = 'ExecStart=/usr/local/lib/cri-resize-shim/bin/cri-resize-shim $FLAGS\n';
  expect(text({ kind: 'executable', file: '/root/cri-resize-shim-single' })).toBe(start);
});

test('a kubelet that uses the shim through a link to the folder of its socket is not changed', async () => {
  symlinkSync(fake.folder, fake.at('link'));
  node(`unix://${fake.at('link/shim.sock')}`);
  fake.put('from/dist/resizectl.js', '');
  expect((await planInstall(fake.site())).already).toContain(`kubelet.service uses unix://${fake.node.listen}`);
});

test('uninstalling is rejected if the endpoint of kubelet is unclear, as that of MicroK8s, while the shim is installed', async () => {
  node(`unix://${fake.node.listen}`, 'ActiveState=active\nUnitFileState=enabled');
  fake.put('from/dist/resizectl.js', '');
  fake.process(42, 'kubelite');
  await expect(planUninstall(fake.site())).rejects.toMatchObject({
    name: 'Refusal',
    message: expect.stringContaining('kubelet.service runs, but its endpoint is unknown: kubelite has') as string,
  });
});

test('uninstalling first forgets that kubelet uses the shim, so that its move is no drift', async () => {
  node(`unix://${fake.node.listen}`, 'ActiveState=active\nUnitFileState=enabled');
  fake.put('from/dist/resizectl.js', '');
  fake.put('state/kubelet-uses-the-shim', '');
  expect(await textsOf(planUninstall(fake.site()))).toEqual([
    `remove ${fake.at('state/kubelet-uses-the-shim')}`,
    expect.stringContaining(`set unix://${fake.node.containerd} in ${fake.at('kubelet.yaml')}`),
    expect.stringMatching(/^stop and disable cri-resize-shim.service, /),
  ]);
});
