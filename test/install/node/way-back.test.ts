import { lstatSync, mkdirSync, readFileSync, readlinkSync, symlinkSync } from 'node:fs';
import { execa } from 'execa';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { linesBack } from '../../../src/install/node/index.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

// Runs the lines on files of a folder, with a systemctl that notes its arguments.
let fake: FakeInstallNode;
beforeEach(() => (fake = new FakeInstallNode()));
afterEach(() => fake.remove());

const OURS = '/run/cri-resize-shim/cri-resize-shim.sock';
const CONTAINERD = '/run/containerd/containerd.sock';

test('four lines of shell replace the socket in the files of kubeadm, of a flag and behind a link, and nowhere beyond', async () => {
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

test('where no file has the socket, the lines leave the shim on', async () => {
  fake.put('kubelet/config.yaml', 'kind: KubeletConfiguration\n');
  fake.systemctl(`echo "$*" >> ${fake.at('systemctl.log')}`);
  const node = { ...fake.node, listen: OURS, containerd: CONTAINERD, kubeletFiles: [fake.at('kubelet/*.*')] };
  const { exitCode } = await execa('sh', ['-c', linesBack(node).join('\n')], { reject: false });
  expect(exitCode).toBe(1);
  expect(readFileSync(fake.at('systemctl.log'), 'utf8')).not.toContain('disable');
});

test('README.md and docs/troubleshooting.md have these lines', async () => {
  const { KUBELET_FILES } = await import('../../../src/install/node/index.ts');
  const lines = linesBack({ ...fake.node, listen: OURS, containerd: CONTAINERD, kubeletFiles: KUBELET_FILES });
  expect(lines).toHaveLength(4);
  for (const page of ['README.md', 'docs/troubleshooting.md'])
    expect(readFileSync(page, 'utf8')).toContain(lines.map((line) => `    ${line}\n`).join(''));
});
