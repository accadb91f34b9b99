import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, expect, test } from 'vitest';

/** Runs the script with programs and files in a folder. dpkg runs nothing else for a package that is only unpacked. */

const SOCKET = '/run/cri-resize-shim/cri-resize-shim.sock';
const CONFIG = 'var/lib/kubelet/config.yaml';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'postrm-'));
  put('system/x', '');
  put(CONFIG, `containerRuntimeEndpoint: unix://${SOCKET}\n`);
});
afterEach(() => rmSync(folder, { recursive: true }));

function put(path: string, text: string): void {
  mkdirSync(dirname(join(folder, path)), { recursive: true });
  writeFileSync(join(folder, path), text);
  chmodSync(join(folder, path), 0o755);
}
const config = (): string => readFileSync(join(folder, CONFIG), 'utf8');

/** Removes the package. Returns the error output and what systemctl was asked for. */
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
