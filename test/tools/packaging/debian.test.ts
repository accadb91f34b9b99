import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';

let folder: string;

afterEach(() => rmSync(folder, { recursive: true }));

describe('prerm', () => {
  /** Runs the script in a folder with programs and files. test/e2e/systemd/units.test.ts tests it with systemd. */

  const PACKAGED = '/usr/lib/systemd/system/cri-resize-shim.service';
  const OWN = '/etc/systemd/system/cri-resize-shim.service';
  const COMMAND =
    '/usr/bin/env /usr/lib/cri-resize-shim/bin/node /usr/lib/cri-resize-shim/dist/cri-resize-shim.js $FLAGS';
  const REFUSED = 'cri-resize-shim is not removed: kubelet may use it';

  beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'prerm-'))));

  interface Machine {
    readonly unit?: string;
    readonly command?: string;
    readonly isActive?: boolean;
    readonly isEnabled?: boolean;
    /** Whether systemd has a unit of kubelet. */
    readonly hasKubelet?: boolean;
    /** The command line of a process. */
    readonly process?: string;
    /** Exit code of `resizectl uninstall`. */
    readonly uninstall?: number;
    /** A file below the root with the socket of the shim in it, or the marker that kubelet uses it. */
    readonly file?: string;
    readonly text?: string;
  }

  const SOCKET = 'unix:///run/cri-resize-shim/cri-resize-shim.sock';

  /** Removes the package. Returns the exit code, the error output, and the changes by resizectl and systemctl. */
  async function removal({
    unit = PACKAGED,
    command = COMMAND,
    isActive = false,
    isEnabled = isActive,
    hasKubelet = true,
    process: line = 'init',
    uninstall = 0,
    file,
    text = `containerRuntimeEndpoint: ${SOCKET}\n`,
  }: Machine): Promise<{ readonly code: number | undefined; readonly stderr: string; readonly calls: string }> {
    const [path = ''] = command.split(' ');
    put('system/x', '');
    for (const path of ['var', 'etc', 'usr/lib']) rmSync(join(folder, path), { recursive: true, force: true });
    if (file !== undefined) put(file, text);
    put('proc/42/cmdline', `${line.replaceAll(' ', '\0')}\0`);
    put('resizectl', `#!/bin/sh\necho "resizectl $*" >>${folder}/calls\nexit ${uninstall}\n`);
    put(
      'bin/systemctl',
      `#!/bin/sh
case "$*" in
*FragmentPath*) echo 'FragmentPath=${unit}' ;;
*ExecStart*) echo 'ExecStart={ path=${path} ; argv[]=${command} ; ignore_errors=no }' ;;
*ActiveState,UnitFileState*)
  printf 'ActiveState=%s\\nUnitFileState=%s\\n' ${isActive ? 'active' : 'inactive'} ${isEnabled ? 'enabled' : 'disabled'} ;;
list-unit-files*) ${hasKubelet ? "echo 'k3s.service enabled'" : ':'} ;;
*) echo "systemctl $*" >>${folder}/calls ;;
esac
`,
    );
    const script = readFileSync('tools/packaging/debian/prerm', 'utf8')
      .replaceAll('/usr/bin/resizectl', join(folder, 'resizectl'))
      .replaceAll('/run/systemd/system', join(folder, 'system'))
      .replaceAll('/var/lib/', join(folder, 'var/lib/'))
      .replaceAll('/var/snap/', join(folder, 'var/snap/'))
      .replaceAll('/etc/eks/', join(folder, 'etc/eks/'))
      .replaceAll('/etc/*/', join(folder, 'etc/*/'))
      .replaceAll('/usr/lib/systemd/system/kubelet', join(folder, 'usr/lib/systemd/system/kubelet'))
      .replaceAll('/proc/', join(folder, 'proc/'));
    put('prerm', script);
    put('calls', '');
    const env = { PATH: `${join(folder, 'bin')}:${process.env['PATH']}` };
    const { exitCode, stderr } = await execa('sh', [join(folder, 'prerm'), 'remove'], { reject: false, env });
    return { code: exitCode, stderr, calls: readFileSync(join(folder, 'calls'), 'utf8') };
  }

  test.each([
    ['units that are active', { isActive: true }],
    ['units that are stopped', {}],
    ['a command that a drop-in starts with another program', { isActive: true, command: `/usr/bin/nice ${COMMAND}` }],
    ['an edited copy of the unit', { isActive: true, unit: OWN }],
  ])('with %s, a removal first points kubelet back at containerd, and stops if that fails', async (_, machine) => {
    const { code, calls } = await removal(machine);
    expect([code, calls]).toEqual([0, expect.stringMatching(/^resizectl uninstall\nsystemctl disable --now /)]);
    const failed = await removal({ ...machine, uninstall: 2, file: 'var/lib/kubelet/config.yaml' });
    expect(failed).toMatchObject({ code: 1, calls: 'resizectl uninstall\n' });
    expect(failed.stderr).toContain(REFUSED);
  });

  test.each([true, false])(
    'a process with the socket in its command line prevents the removal of the package (active: %s)',
    async (isActive) => {
      const flag = `--container-runtime-endpoint=${SOCKET}`;
      const machine = { isActive, hasKubelet: false };
      expect(await removal({ ...machine, process: `k3s agent ${flag}` })).toMatchObject({ code: 1, calls: '' });
      expect(await removal({ ...machine, process: 'k3s agent' })).toMatchObject({ code: 0 });
    },
  );

  const MARKER = 'var/lib/cri-resize-shim/kubelet-uses-the-shim';

  test.each([
    'var/lib/rancher/k3s/agent/etc/kubelet.conf.d/99-cri-resize-shim.conf',
    'var/lib/kubelet/config.yaml',
    'etc/default/kubelet',
    'etc/systemd/system/kubelet.service.d/20-endpoint.conf',
    'usr/lib/systemd/system/kubelet-agent.service',
    'etc/eks/nodeadm.d/99-cri-resize-shim.yaml',
    'var/snap/microk8s/7180/args/kubelet',
  ])('%s with the socket of the shim prevents the removal of the package while kubelet does not run', async (file) => {
    const kept = await removal({ hasKubelet: false, file });
    expect(kept).toMatchObject({ code: 1, calls: '' });
    expect(kept.stderr).toContain(`These files have its socket:\n${join(folder, file)}\n`);
    expect(kept.stderr).toContain('resizectl uninstall --kubelet-unit UNIT');
    expect(await removal({ hasKubelet: false, file, text: `# ${SOCKET}\n` })).toMatchObject({ code: 0 });
  });

  test('a kubelet that has used the shim prevents the removal of the package, wherever its configuration is', async () => {
    expect(await removal({ hasKubelet: false, file: MARKER, text: '' })).toMatchObject({ code: 1, calls: '' });
  });

  test('a package whose program does not start can be removed once an administrator has followed the printed steps', async () => {
    const machine = { uninstall: 127 };
    const refused = await removal({ ...machine, isActive: true });
    expect(refused).toMatchObject({ code: 1, calls: 'resizectl uninstall\n' });
    expect(refused.stderr).toContain(`rm -f ${join(folder, MARKER)}`);
    expect(await removal({ ...machine, isEnabled: true })).toMatchObject({ code: 1 });
    expect(await removal({ ...machine, file: MARKER, text: '' })).toMatchObject({ code: 1 });
    expect(await removal({ ...machine, file: 'var/lib/kubelet/config.yaml' })).toMatchObject({ code: 1 });
    expect(await removal({ ...machine, process: `kubelet --container-runtime-endpoint=${SOCKET}` })).toMatchObject({
      code: 1,
    });
    const { code, calls } = await removal(machine);
    expect([code, calls]).toEqual([0, expect.stringMatching(/^resizectl uninstall\nsystemctl disable --now /)]);
  });

  test('a removal does not change the units of another installation', async () => {
    const command = '/usr/bin/env /usr/bin/node /usr/local/lib/cri-resize-shim/dist/cri-resize-shim.js $FLAGS';
    expect(await removal({ isActive: true, unit: OWN, command })).toEqual({ code: 0, stderr: '', calls: '' });
  });
});

describe('postrm', () => {
  /** Runs the script with programs and files in a folder: dpkg runs only this script for an unpacked package. */

  const SOCKET = '/run/cri-resize-shim/cri-resize-shim.sock';
  const CONFIG = 'var/lib/kubelet/config.yaml';

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'postrm-'));
    put('system/x', '');
    put(CONFIG, `containerRuntimeEndpoint: unix://${SOCKET}\n`);
  });
  const config = (): string => readFileSync(join(folder, CONFIG), 'utf8');

  /** Removes the package. Returns the error output and the requests to systemctl. */
  async function removal({ hasKubelet = true, what = 'remove' } = {}): Promise<{ stderr: string; calls: string }> {
    put('calls', '');
    put(
      'bin/systemctl',
      `#!/bin/sh\necho "$*" >>${folder}/calls\ncase "$*" in *kubelet.service) exit ${hasKubelet ? 0 : 5} ;; esac\n`,
    );
    const script = readFileSync('tools/packaging/debian/postrm', 'utf8')
      .replaceAll('/run/systemd/system', join(folder, 'system'))
      .replaceAll('/var/lib/', join(folder, 'var/lib/'))
      .replaceAll(' /etc/', ` ${join(folder, 'etc/')}`)
      .replaceAll('/usr/lib/systemd/system/kubelet', join(folder, 'usr/lib/systemd/system/kubelet'));
    put('postrm', script);
    const env = { PATH: `${join(folder, 'bin')}:${process.env['PATH']}`, DPKG_ROOT: '' };
    const { stderr } = await execa('sh', [join(folder, 'postrm'), what], { env });
    return { stderr, calls: readFileSync(join(folder, 'calls'), 'utf8') };
  }

  test('a package that is only unpacked is removed: kubelet is pointed back at the last containerd, and the shim stops', async () => {
    put('var/lib/cri-resize-shim-bypass/target', 'CRI_RESIZE_SHIM_BYPASS_TO="/run/k3s/c.sock"\n');
    const { calls } = await removal();
    expect(config()).toBe('containerRuntimeEndpoint: unix:///run/k3s/c.sock\n');
    expect(calls).toMatch(/\nrestart kubelet.service\nstop cri-resize-shim.service /);
  });

  test('if kubelet runs in another unit and no target is known, the shim serves until that unit is restarted', async () => {
    const { stderr, calls } = await removal({ hasKubelet: false });
    expect(config()).toBe('containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n');
    expect(stderr).toContain('Restart the unit of kubelet now, such as k3s.service.');
    expect(calls).not.toContain('stop');
  });

  test('an upgrade, or another installation on the machine, does not change the configuration of kubelet', async () => {
    await removal({ what: 'upgrade' });
    put('etc/systemd/system/cri-resize-shim.service', '');
    await removal();
    expect(config()).toContain(SOCKET);
  });
});

function put(path: string, text: string): void {
  mkdirSync(dirname(join(folder, path)), { recursive: true });
  writeFileSync(join(folder, path), text);
  chmodSync(join(folder, path), 0o755);
}
