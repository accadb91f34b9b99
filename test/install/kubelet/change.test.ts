import { chmodSync, existsSync, lstatSync, readFileSync, readlinkSync, renameSync, symlinkSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { readEndpointChain } from '../../../src/endpoint/index.ts';
import { keepAtShim, pointAtContainerd, pointAtShim } from '../../../src/install/kubelet/change.ts';
import type { Kubelet } from '../../../src/install/kubelet/kubelet.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

// Tests the files. test/e2e/install/endpoint.test.ts restarts kubelet too.
let fake: FakeInstallNode;
beforeEach(() => (fake = new FakeInstallNode()));
afterEach(() => fake.remove());

const HEAD = 'apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n';
const BACKUP = '.before-cri-resize-shim';
const containerd = (): string => `containerRuntimeEndpoint: unix://${fake.node.containerd}\n`;
const ours = (): string => `containerRuntimeEndpoint: unix://${fake.node.listen}\n`;
const read = (name: string): string => readFileSync(fake.at(name), 'utf8');

async function kubelet(configDir?: string): Promise<Kubelet> {
  const flags = { endpoint: undefined, config: fake.at('config.yaml'), configDir };
  const chain = await readEndpointChain(flags, { root: '', cwd: fake.folder });
  return { endpoint: chain.endpoint!, chain };
}

test('an installation names every file that it changes', async () => {
  fake.put('config.yaml', HEAD + containerd());
  fake.put('instance-config.yaml', containerd());
  const listed = (name: string): string => `${fake.at(name)} (backup: ${fake.at(name)}${BACKUP})`;
  const { description } = await pointAtShim(fake.site(), await kubelet());
  expect(description).toBe(
    `set unix://${fake.node.listen} in ${listed('config.yaml')} and ${listed('instance-config.yaml')} and restart kubelet.service`,
  );
});

test('for a kubelet that uses the shim, only kubeadm’s patch is changed; the change is undone exactly, also through a link', async () => {
  fake.put('config.yaml', HEAD + ours());
  const before = `# by kubeadm\ncontainerRuntimeEndpoint: "unix://${fake.node.containerd}"`;
  fake.put('instance-config.yaml', before);
  renameSync(fake.at('instance-config.yaml'), fake.at('linked.yaml'));
  symlinkSync(fake.at('linked.yaml'), fake.at('instance-config.yaml'));
  chmodSync(fake.at('linked.yaml'), 0o640);
  const [change, ...others] = await keepAtShim(fake.site(), await kubelet());
  expect(others).toEqual([]);
  await change!.do();
  expect(read('linked.yaml')).toBe(`# by kubeadm\ncontainerRuntimeEndpoint: unix://${fake.node.listen}`);
  expect(read(`linked.yaml${BACKUP}`)).toBe(before);
  expect(lstatSync(fake.at(`linked.yaml${BACKUP}`)).mode & 0o777).toBe(0o640);
  expect(await keepAtShim(fake.site(), await kubelet())).toEqual([]);
  await change!.undo();
  expect(read('linked.yaml')).toBe(before);
  expect(lstatSync(fake.at('linked.yaml')).mode & 0o777).toBe(0o640);
  expect(readlinkSync(fake.at('instance-config.yaml'))).toBe(fake.at('linked.yaml'));
  expect(existsSync(fake.at(`linked.yaml${BACKUP}`))).toBe(false);
});

test('kubeadm’s patch is left alone where a drop-in overrides what kubeadm writes', async () => {
  fake.put('config.yaml', HEAD + containerd());
  fake.put('instance-config.yaml', containerd());
  fake.put('drop-ins/99-cri-resize-shim.conf', HEAD + ours());
  expect(await keepAtShim(fake.site(), await kubelet(fake.at('drop-ins')))).toEqual([]);
});

test('a removal restores what kubeadm would write, even if kubelet does not use the shim any more, without a restart', async () => {
  fake.systemctl('exit 9');
  fake.put('config.yaml', HEAD + containerd());
  fake.put(`config.yaml${BACKUP}`, HEAD + containerd());
  fake.put('instance-config.yaml', `maxPods: 9\n${ours()}`);
  fake.put(`instance-config.yaml${BACKUP}`, 'maxPods: 9\n');
  const [change] = await pointAtContainerd(fake.site(), await kubelet());
  expect(change!.description).toBe(
    `remove ${fake.at('config.yaml')}${BACKUP}, set no endpoint in ${fake.at('instance-config.yaml')}`,
  );
  await change!.do();
  expect(read('config.yaml')).toBe(HEAD + containerd());
  expect(read('instance-config.yaml')).toBe('maxPods: 9\n');
  expect([`config.yaml${BACKUP}`, `instance-config.yaml${BACKUP}`].map((name) => existsSync(fake.at(name)))).toEqual([
    false,
    false,
  ]);
  await change!.undo();
  expect(read('instance-config.yaml')).toBe(`maxPods: 9\n${ours()}`);
  expect(read(`instance-config.yaml${BACKUP}`)).toBe('maxPods: 9\n');
  await change!.do();
  expect(await pointAtContainerd(fake.site(), await kubelet())).toEqual([]);
});

test('a file that was changed since the installation keeps that change; one without a backup gets containerd', async () => {
  fake.systemctl('exit 9');
  fake.put('config.yaml', HEAD + containerd());
  fake.put('instance-config.yaml', `maxPods: 10\n${ours()}`);
  fake.put(`instance-config.yaml${BACKUP}`, 'maxPods: 9\ncontainerRuntimeEndpoint: unix:///before.sock\n');
  await (await pointAtContainerd(fake.site(), await kubelet()))[0]!.do();
  expect(read('instance-config.yaml')).toBe('maxPods: 10\ncontainerRuntimeEndpoint: unix:///before.sock\n');
  // kubeadm writes this file from a flag, if it does not exist.
  fake.put('instance-config.yaml', ours());
  await (await pointAtContainerd(fake.site(), await kubelet()))[0]!.do();
  expect(read('instance-config.yaml')).toBe(containerd());
});

test('a removal of our drop-in says what kubelet uses then', async () => {
  fake.put('config.yaml', HEAD + containerd());
  fake.put('drop-ins/99-cri-resize-shim.conf', HEAD + ours());
  const [change, ...others] = await pointAtContainerd(fake.site(), await kubelet(fake.at('drop-ins')));
  expect(others).toEqual([]);
  expect(change!.description).toBe(`remove ${fake.at('drop-ins/99-cri-resize-shim.conf')} and restart kubelet.service`);
});

test('a removal restores an endpoint that was set by hand through a link to the folder of the socket', async () => {
  symlinkSync(fake.folder, fake.at('link'));
  fake.put('config.yaml', `${HEAD}containerRuntimeEndpoint: unix://${fake.at('link/shim.sock')}\n`);
  const [change, ...others] = await pointAtContainerd(fake.site(), await kubelet());
  expect(others).toEqual([]);
  expect(change!.description).toBe(
    `set unix://${fake.node.containerd} in ${fake.at('config.yaml')} and restart kubelet.service`,
  );
});
