import { lstatSync, mkdirSync, readFileSync, readlinkSync, symlinkSync } from 'node:fs';
import { execa } from 'execa';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { checkKubelet } from '../../../src/install/node/check-kubelet.ts';
import type { Finding } from '../../../src/install/node/finding.ts';
import { checkKubeletRuntime, linesBack } from '../../../src/install/node/way-back.ts';
import { FakeBackend } from '../../support/daemon/test-daemon.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

// Runs the lines on files of a folder, with a systemctl that records its arguments.
let fake: FakeInstallNode;
beforeEach(() => (fake = new FakeInstallNode()));
afterEach(() => fake.remove());

const OURS = '/run/cri-resize-shim/cri-resize-shim.sock';
const CONTAINERD = '/run/containerd/containerd.sock';

test('four shell lines replace the socket in the files of kubeadm, of a flag and behind a link, and in no other file', async () => {
  const node = { ...fake.node, listen: OURS, containerd: CONTAINERD };
  const files = {
    'kubelet/config.yaml': `# ours\nkind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix://${OURS} # here\n`,
    'kubelet/instance-config.yaml': `containerRuntimeEndpoint: "unix://${OURS}"\n`,
    'kubelet/kubeadm-flags.env': `KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix://${OURS} --v=2"\n`,
    'units/kubelet.service.d/10-runtime.conf': `[Service]\nEnvironment=A=--container-runtime-endpoint=${OURS}\n`,
    'units/other.service': `ListenStream=${OURS}\n`,
  };
  for (const [name, text] of Object.entries(files)) fake.put(name, text);
  mkdirSync(fake.at('linked'));
  fake.put('linked/kubelet', `KUBELET_EXTRA_ARGS=--container-runtime-endpoint=unix://${OURS}\n`);
  symlinkSync(fake.at('linked/kubelet'), fake.at('kubelet/extra.env'));
  fake.systemctl(`echo "$*" >> ${fake.at('systemctl.log')}`);
  const patterns = [fake.at('kubelet/*.*'), fake.at('units/kubelet*'), fake.at('none/kubelet*')];
  await execa('sh', ['-c', linesBack({ ...node, kubeletFiles: patterns }).join('\n')]);
  for (const [name, text] of Object.entries(files))
    expect(readFileSync(fake.at(name), 'utf8'), name).toBe(
      name === 'units/other.service' ? text : text.replace(OURS, CONTAINERD),
    );
  expect(lstatSync(fake.at('kubelet/extra.env')).isSymbolicLink()).toBe(true);
  expect(readlinkSync(fake.at('kubelet/extra.env'))).toBe(fake.at('linked/kubelet'));
  expect(readFileSync(fake.at('linked/kubelet'), 'utf8')).toContain(`unix://${CONTAINERD}\n`);
  expect(readFileSync(fake.at('systemctl.log'), 'utf8').split('\n')).toEqual([
    'daemon-reload',
    'reset-failed kubelet',
    'restart kubelet',
    'disable --now cri-resize-shim.service cri-resize-shim.socket cri-resize-shim-resize.socket',
    '',
  ]);
});

test('the shell lines do not disable the shim if no file has its socket', async () => {
  fake.put('kubelet/config.yaml', 'kind: KubeletConfiguration\n');
  fake.systemctl(`echo "$*" >> ${fake.at('systemctl.log')}`);
  const node = { ...fake.node, listen: OURS, containerd: CONTAINERD, kubeletFiles: [fake.at('kubelet/*.*')] };
  const { exitCode } = await execa('sh', ['-c', linesBack(node).join('\n')], { reject: false });
  expect(exitCode).toBe(1);
  expect(readFileSync(fake.at('systemctl.log'), 'utf8')).not.toContain('disable');
});

test('README.md and docs/troubleshooting.md contain the shell lines that restore the node', async () => {
  const { KUBELET_FILES } = await import('../../../src/install/index.ts');
  const lines = linesBack({ ...fake.node, listen: OURS, containerd: CONTAINERD, kubeletFiles: KUBELET_FILES });
  expect(lines).toHaveLength(4);
  for (const page of ['README.md', 'docs/troubleshooting.md'])
    expect(readFileSync(page, 'utf8')).toContain(lines.map((line) => `    ${line}\n`).join(''));
});

describe('the checks kubelet and kubelet runtime for a stopped kubelet', () => {
  const sets = (endpoint: string): string =>
    `apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncontainerRuntimeEndpoint: ${endpoint}\n`;

  /** A stopped kubelet as on GKE: the flags in /etc/default/kubelet name a file that no pattern finds. */
  async function both(): Promise<readonly Finding[]> {
    const execStart =
      '{ path=/home/kubernetes/bin/kubelet ; argv[]=/home/kubernetes/bin/kubelet $KUBELET_OPTS ; ignore_errors=no ; pid=0 }';
    const properties = [`ExecStart=${execStart}`, `EnvironmentFiles=${fake.at('default/kubelet')} (ignore_errors=no)`];
    fake.unit({ state: 'inactive', properties });
    return [await checkKubelet(fake.node), await checkKubeletRuntime(fake.node)];
  }

  let backend: FakeBackend;
  beforeEach(async () => (backend = await FakeBackend.listen(fake.node.containerd, ['Version'])));
  afterEach(() => backend.close());

  test.each(['the file', 'the flag'])(
    'check kubelet and check kubelet runtime both find the socket of the shim in %s of a stopped kubelet',
    async (place) => {
      const config = fake.at('home/kubernetes/kubelet-config.yaml');
      const options = fake.at('default/kubelet');
      const ours = `unix://${fake.node.listen}`;
      const isFile = place === 'the file';
      fake.put('home/kubernetes/kubelet-config.yaml', sets(isFile ? ours : 'unix:///other.sock'));
      const flag = isFile ? '' : ` --container-runtime-endpoint=${ours}`;
      fake.put('default/kubelet', `KUBELET_OPTS="--config ${config}${flag}"\n`);
      const [kubelet, runtime] = await both();
      const by = isFile ? config : '--container-runtime-endpoint';
      expect(kubelet).toMatchObject({
        result: 'warning',
        found: `kubelet.service is inactive, configured with the shim (set by ${by})`,
      });
      expect(runtime).toMatchObject({
        result: 'failed',
        found: `kubelet uses ${fake.node.listen} (${by}), and nothing answers there: this node has no container runtime`,
      });
      // The lines reach the file that no pattern finds.
      const [, lines = ''] = /no program of the shim:\n(.*)/s.exec(runtime?.remedy ?? '') ?? [];
      expect(lines.split('\n')[0]).toContain(isFile ? config : options);
      fake.systemctl('exit 0');
      await execa('sh', ['-c', lines]);
      const text = readFileSync(isFile ? config : options, 'utf8');
      expect(text).toContain(`unix://${fake.node.containerd}`);
      expect(text).not.toContain(fake.node.listen);
    },
  );

  test('check kubelet and check kubelet runtime both find containerd, even if an older file has the socket of the shim', async () => {
    fake.put('kubelet/config.yaml', sets(`unix://${fake.node.listen}`));
    const config = fake.at('home/kubernetes/kubelet-config.yaml');
    fake.put('home/kubernetes/kubelet-config.yaml', sets(`unix://${fake.node.containerd}`));
    fake.put('default/kubelet', `KUBELET_OPTS="--config ${config}"\n`);
    const [kubelet, runtime] = await both();
    const says = `configured with unix://${fake.node.containerd}, not the shim (set by ${config})`;
    expect(kubelet?.found).toBe(`kubelet.service is inactive, ${says}`);
    expect(runtime).toMatchObject({ result: 'ok', found: `kubelet does not use ${fake.node.listen}` });
  });

  test('check kubelet runtime reads the usual files of kubelet if another program starts it', async () => {
    fake.put('kubelet/config.yaml', sets(`unix://${fake.node.listen}`));
    fake.unit({
      state: 'inactive',
      properties: ['ExecStart={ path=/k3s ; argv[]=/k3s server ; ignore_errors=no ; pid=0 }'],
    });
    expect((await checkKubeletRuntime(fake.node)).found).toContain(`(${fake.at('kubelet/config.yaml')})`);
  });
});
