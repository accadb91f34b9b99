import { chmodSync, cpSync, existsSync, mkdirSync, readFileSync, statSync, symlinkSync } from 'node:fs';
import { execa } from 'execa';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Program } from '../../../src/install/host/programs.ts';
import {
  commandText,
  planCommand,
  planInstall,
  planUninstall,
  removingCommand,
  unitText,
} from '../../../src/install/node/install.ts';
import { linesBack } from '../../../src/install/node/way-back.ts';
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
*OnFailure*) echo 'OnFailure=' ;;
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

test('installing does not change the program and the units of a package', async () => {
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

test('the rollback of an installation over a failed shim, for which the bypass serves, starts the shim again last', async () => {
  node(`unix://${fake.node.containerd}`);
  fake.put('from/dist/resizectl.js', '');
  const rest = readFileSync(fake.at('bin/systemctl'), 'utf8').replace('#!/bin/sh\n', '');
  const first = async (state: string): Promise<string | undefined> => {
    fake.systemctl(`case "$*" in
*OnFailure*) echo 'OnFailure=cri-resize-shim-fallback.service'; exit ;;
*UnitFileState*'-- cri-resize-shim.service') printf 'ActiveState=${state}\\nUnitFileState=enabled\\n'; exit ;;
*UnitFileState*) printf 'ActiveState=active\\nUnitFileState=enabled\\n'; exit ;;
esac
${rest}`);
    return (await textsOf(planInstall(fake.site())))[0];
  };
  expect(await first('failed')).toBe('record that cri-resize-shim.service has failed, to start it again on rollback');
  // The service was stopped by hand, so a rollback does not start it.
  expect(await first('inactive')).toBe(`write ${fake.at('etc/config.yaml')}`);
});

test('installing is rejected if kubelet uses another runtime', async () => {
  node('unix:///run/other/containerd.sock');
  await expect(planInstall(fake.site())).rejects.toMatchObject({
    name: 'Refusal',
    message: `kubelet uses unix:///run/other/containerd.sock, but the shim would use unix://${fake.node.containerd}`,
    remedy: `set containerRuntimeEndpoint: unix:///run/other/containerd.sock in ${fake.at('etc/config.yaml')}, or in ${fake.at('etc/flags')} if it has that flag, and try again`,
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

test('uninstalling changes kubelet first and removes the program last', async () => {
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

test('a package and an installation of resizectl do not change each other', async () => {
  const [own, packaged] = [fake.at('units/cri-resize-shim.service'), '/usr/lib/systemd/system/cri-resize-shim.service'];
  const state = 'ActiveState=active\nUnitFileState=enabled';
  fake.put('units/cri-resize-shim.service', '');
  fake.put('to/dist/resizectl.js', '');
  // Simulates resizectl of the package, whose folder contains no units.
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
  // Simulates a resizectl outside the package.
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

test('installing is rejected with a socket or a state folder that the units do not grant, unless a drop-in does', async () => {
  node(`unix://${fake.node.containerd}`);
  fake.put('from/dist/resizectl.js', '');
  const listen = fake.at('other/cri.sock');
  await expect(planInstall(fake.site({ node: { ...fake.node, listen } }))).rejects.toMatchObject({
    name: 'Refusal',
    message: `listen is unix://${listen}, but cri-resize-shim.socket serves unix://${fake.node.listen}`,
  });
  const stateFolder = fake.at('elsewhere/state');
  const elsewhere = fake.site({ node: { ...fake.node, stateFolder } });
  await expect(planInstall(elsewhere)).rejects.toMatchObject({
    name: 'Refusal',
    message: `stateFolder is ${stateFolder}, to which cri-resize-shim.service may not write`,
  });
  fake.put('units/cri-resize-shim.service.d/y.conf', `[Service]\nReadWritePaths=${fake.at('elsewhere')}\n`);
  expect((await planInstall(elsewhere)).changes).not.toEqual([]);
});

test('installing is rejected if the program does not fit on the disk, unless it is in place', async () => {
  node(`unix://${fake.node.containerd}`);
  const full = { ...fake.node, programSpace: 2 ** 60 };
  const program = { kind: 'executable', file: fake.at('from/single') } as const;
  fake.put('from/single', 'x');
  cpSync('systemd', fake.at('from/systemd'), { recursive: true });
  await expect(planInstall(fake.site({ node: full, program }))).rejects.toMatchObject({
    name: 'Refusal',
    message: expect.stringMatching(/ MiB free for /) as string,
    remedy: `free disk space: ${2 ** 40} MiB are needed`,
  });
  const inPlace = { kind: 'executable', file: fake.at('to/bin/cri-resize-shim') } as const;
  expect(await textsOf(planInstall(fake.site({ node: full, program: inPlace })))).toContain(
    `write ${fake.at('etc/config.yaml')}`,
  );
});

test('units start the Node of the installation, or the single executable', () => {
  const shipped =
    'ExecStart=/usr/bin/env /usr/bin/node /usr/local/lib/cri-resize-shim/dist/cri-resize-shim.js $FLAGS\n';
  const places = { to: '/usr/local/lib/cri-resize-shim', node: fake.node };
  const text = (program: Program): string => unitText(shipped, { program, ...places });
  const by = (node: string): string => text({ kind: 'folder', folder: '/anywhere', node, arch: 'x64' });
  expect(by('/usr/bin/node')).toBe(shipped);
  expect(by('/opt/node 20%/node')).toBe(shipped.replace('/usr/bin/node', '"/opt/node 20%%/node"'));
  // env would parse the path as an assignment of a variable.
  expect(by('/opt/a=b/node')).toBe(shipped.replace('/usr/bin/env /usr/bin/node', '/opt/a=b/node'));
  const start = 'ExecStart=/usr/bin/env /usr/local/lib/cri-resize-shim/bin/cri-resize-shim $FLAGS\n';
  expect(text({ kind: 'executable', file: '/root/cri-resize-shim-single' })).toBe(start);
});

test('the bypass connects to the containerd of the installation if its target file is lost', () => {
  const shipped = readFileSync('systemd/cri-resize-shim-bypass.service', 'utf8');
  const program = { kind: 'executable', file: '/root/single' } as const;
  const environment = (containerd: string): string | undefined =>
    /^Environment=.*$/m.exec(unitText(shipped, { program, to: '/usr/local/lib/x', node: { containerd } }))?.[0];
  const [k3s, odd] = ['/run/k3s/containerd/containerd.sock', '/run/a 1%/c.sock'];
  expect(environment(k3s)).toBe(`Environment=CRI_RESIZE_SHIM_BYPASS_TO=${k3s}`);
  expect(environment(odd)).toBe('Environment="CRI_RESIZE_SHIM_BYPASS_TO=/run/a 1%%/c.sock"');
});

test('a kubelet that uses the shim through a link to the folder of its socket is not changed', async () => {
  symlinkSync(fake.folder, fake.at('link'));
  node(`unix://${fake.at('link/shim.sock')}`);
  fake.put('from/dist/resizectl.js', '');
  expect((await planInstall(fake.site())).already).toContain(`kubelet.service uses unix://${fake.node.listen}`);
});

test('uninstalling is rejected if the shim is installed and the endpoint of kubelet is unclear, as without the file of its flags on MicroK8s', async () => {
  node(`unix://${fake.node.listen}`, 'ActiveState=active\nUnitFileState=enabled');
  fake.put('from/dist/resizectl.js', '');
  fake.process(42, 'kubelite');
  fake.put('proc/42/cmdline', 'kubelite\0');
  await expect(planUninstall(fake.site())).rejects.toMatchObject({
    name: 'Refusal',
    message: expect.stringContaining('kubelet.service runs, but its endpoint is unknown: /var/snap/microk8s') as string,
  });
});

test('uninstalling is rejected if a stopped kubelet is configured with the shim, even if the units are stopped and disabled', async () => {
  fake.put('from/dist/resizectl.js', '');
  const planned = (endpoint: string): ReturnType<typeof planUninstall> => {
    node(endpoint);
    const rest = readFileSync(fake.at('bin/systemctl'), 'utf8').replace('#!/bin/sh\n', '');
    const command = `/usr/bin/kubelet --config=${fake.at('kubelet.yaml')}`;
    fake.systemctl(`case "$*" in
*ExecStart*) echo 'ExecStart={ path=/usr/bin/kubelet ; argv[]=${command} ; ignore_errors=no }'; exit ;;
*LoadState*) printf 'LoadState=loaded\\nActiveState=inactive\\nMainPID=0\\n'; exit ;;
show-environment) exit ;;
esac
${rest}`);
    return planUninstall(fake.site());
  };
  await expect(planned(`unix://${fake.node.listen}`)).rejects.toMatchObject({
    name: 'Refusal',
    message: 'kubelet.service is inactive',
  });
  expect((await planned(`unix://${fake.node.containerd}`)).already).toEqual(['the shim is not installed']);
});

describe('uninstalling from a node that has left its cluster', () => {
  /** A line of /proc/net/unix. */
  const HEADER = 'Num       RefCount Protocol Flags    Type St Inode Path';
  /** The units of the shim are enabled, and kubelet does not run. */
  function left(state: string, config: string): void {
    fake.systemctl(`case "$*" in
*ExecStart*) echo 'ExecStart={ path=/usr/bin/kubelet ; argv[]=/usr/bin/kubelet --config=${config} ; ignore_errors=no }' ;;
*LoadState*kubelet.service) printf '${state}\\nMainPID=0\\n' ;;
*LoadState*) echo LoadState=loaded ;;
*UnitFileState*) printf 'ActiveState=active\\nUnitFileState=enabled\\n' ;;
*FragmentPath* | *OnFailure* | show-environment) ;;
*) exit 9 ;;
esac`);
    fake.put('from/dist/resizectl.js', '');
    fake.process(42, 'containerd');
  }
  const stops = [expect.stringMatching(/^stop and disable cri-resize-shim.service, /)];
  const planned = (): ReturnType<typeof textsOf> => textsOf(planUninstall(fake.site()));

  test.each(['inactive', 'activating', 'failed'])(
    'uninstalling removes the shim from a node that has left its cluster if kubelet has no configuration (%s)',
    async (state) => {
      left(`LoadState=loaded\\nActiveState=${state}`, fake.at('kubelet/config.yaml'));
      expect(await planned()).toEqual(stops);
      fake.put(
        'kubelet/config.yaml',
        `kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix://${fake.node.containerd}\n`,
      );
      expect(await planned()).toEqual(stops);
    },
  );

  test('uninstalling is rejected if a stopped kubelet would use the shim at its next start', async () => {
    left('LoadState=loaded\\nActiveState=inactive', fake.at('kubelet/config.yaml'));
    fake.put(
      'kubelet/config.yaml',
      `kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix://${fake.node.listen}\n`,
    );
    await expect(planned()).rejects.toMatchObject({
      message: 'kubelet.service is inactive',
      remedy: `systemctl start kubelet.service, and try again; or, if it is to stay stopped, set unix://${fake.node.containerd} in ${fake.at('kubelet/config.yaml')}`,
    });
  });

  test('uninstalling without a unit of kubelet removes the shim, unless a file has its socket or a kubelet runs', async () => {
    left('LoadState=not-found\\nActiveState=inactive', '');
    fake.put('proc/net/unix', `${HEADER}\n0: 00000002 00000000 00010000 0001 01 4711 ${fake.node.listen}\n`);
    expect(await planned()).toEqual(stops);
    fake.put('kubelet/k3s.conf', `containerRuntimeEndpoint: unix://${fake.node.listen}\n`);
    await expect(planned()).rejects.toMatchObject({
      message: 'no unit kubelet.service',
      remedy: expect.stringMatching(
        /^specify the unit of kubelet .*; or, if it is to stay stopped, .*k3s.conf$/,
      ) as string,
    });
    fake.put('kubelet/k3s.conf', '');
    fake.process(42, 'k3s-server');
    fake.put('proc/42/cmdline', 'k3s\0server\0');
    await expect(planned()).rejects.toThrow('no unit kubelet.service');
  });

  test.each([
    ['LoadState=not-found', 'no unit kubelet.service'],
    ['LoadState=loaded', 'kubelet.service is inactive'],
  ])('uninstalling is rejected while a MicroK8s kubelet with unknown flags runs (%s)', async (state, message) => {
    left(`${state}\\nActiveState=inactive`, fake.at('kubelet/config.yaml'));
    fake.process(42, 'kubelite');
    await expect(planned()).rejects.toThrow(message);
  });

  test('uninstalling without a unit of kubelet is rejected while a client is connected, or if kubelet has used the shim', async () => {
    left('LoadState=not-found\\nActiveState=inactive', '');
    fake.put('proc/net/unix', `${HEADER}\n0: 00000003 00000000 00000000 0001 03 4711 ${fake.node.listen}\n`);
    const used = fake.at('state/kubelet-uses-the-shim');
    const ways: string[] = [];
    const remedy = () =>
      planned().catch((error: unknown) => ways.push((error as { remedy: string }).remedy.replace(/.*stopped, /, '')));
    await remedy();
    fake.put('proc/net/unix', `${HEADER}\n`);
    fake.put('state/kubelet-uses-the-shim', '');
    await remedy();
    expect(ways).toEqual([
      `stop the clients of ${fake.node.listen}`,
      `run rm -f ${used}: it says that kubelet uses the shim`,
    ]);
  });
});

test('uninstalling first removes the record that kubelet uses the shim, so that the new endpoint is not drift', async () => {
  node(`unix://${fake.node.listen}`, 'ActiveState=active\nUnitFileState=enabled');
  fake.put('from/dist/resizectl.js', '');
  fake.put('state/kubelet-uses-the-shim', '');
  expect(await textsOf(planUninstall(fake.site()))).toEqual([
    `remove ${fake.at('state/kubelet-uses-the-shim')}`,
    expect.stringContaining(`set unix://${fake.node.containerd} in ${fake.at('kubelet.yaml')}`),
    expect.stringMatching(/^stop and disable cri-resize-shim.service, /),
  ]);
});

describe('the kubeconfig that the DaemonSet provides', () => {
  const path = (): string => fake.at('provided/kubeconfig');
  const given = { configText: 'logLevel: debug\n', isConfigGiven: true };
  const planned = (...[change]: Parameters<FakeInstallNode['site']>): Promise<readonly string[]> =>
    textsOf(planInstall(fake.site(change)));
  beforeEach(() => {
    node(`unix://${fake.node.listen}`);
    fake.put('from/dist/resizectl.js', '');
  });

  test('the provided kubeconfig is written before the shim starts, for root only, and is not written again if unchanged', async () => {
    const kubeconfig = { path: path(), isUsed: true, text: 'new' };
    const plan = await planInstall(fake.site({ kubeconfig }));
    const texts = plan.changes.map(({ description }) => description);
    expect(texts.indexOf(`write ${path()}`)).toBeLessThan(
      texts.findIndex((text) => text.startsWith('enable and start')),
    );
    const write = plan.changes.find(({ description }) => description === `write ${path()}`)!;
    await write.do();
    expect([readFileSync(path(), 'utf8'), statSync(path()).mode & 0o777]).toEqual(['new', 0o600]);
    expect(await planned({ kubeconfig })).not.toContain(`write ${path()}`);
    await write.undo();
    expect(existsSync(path())).toBe(false);
  });

  test('the provided kubeconfig is removed last if a given configuration does not use it, and a rollback restores it', async () => {
    fake.put('provided/kubeconfig', 'old');
    const { changes } = await planInstall(fake.site(given));
    expect(changes.at(-1)?.description).toBe(`remove ${path()}`);
    await changes.at(-1)?.do();
    expect(existsSync(path())).toBe(false);
    await changes.at(-1)?.undo();
    expect(readFileSync(path(), 'utf8')).toBe('old');
  });

  test.each([
    ['the node keeps its own configuration', {}],
    ['the given configuration names it', { ...given, isUsed: true }],
  ])(
    'the provided kubeconfig stays if %s',
    async (_, { isUsed = false, ...change }: Partial<typeof given> & { isUsed?: boolean }) => {
      fake.put('provided/kubeconfig', 'old');
      expect(await planned({ ...change, kubeconfig: { path: path(), isUsed } })).not.toContain(`remove ${path()}`);
    },
  );

  test('uninstalling removes the provided kubeconfig, also if the shim is already removed, but not for a package', async () => {
    fake.put('provided/kubeconfig', 'old');
    expect(await textsOf(planUninstall(fake.site()))).not.toContain(`remove ${path()}`);
    fake.put('from/systemd/cri-resize-shim.service', '');
    node(`unix://${fake.node.containerd}`);
    expect(await textsOf(planUninstall(fake.site()))).toEqual([`remove ${path()}`]);
  });
});

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
  // A program in another folder needs a command with different content.
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
