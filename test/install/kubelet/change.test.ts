import {
  chmodSync,
  existsSync,
  lstatSync,
  readFileSync,
  readlinkSync,
  renameSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Change } from '../../../src/install/host/change.ts';
import { keepAtShim, pointAtContainerd, pointAtShim, runningKubelet } from '../../../src/install/kubelet/change.ts';
import type { Kubelet } from '../../../src/install/kubelet/kubelet.ts';
import { readEndpointChain } from '../../../src/kubelet/endpoint/chain.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

// Tests the files. test/real-kubelet/operator.test.ts restarts kubelet too.
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

test('a kubelet configuration that is not valid UTF-8 is rejected and not changed', async () => {
  fake.put('config.yaml', HEAD + containerd());
  const bytes = Buffer.concat([Buffer.from('# Gr\xf6\xdfe\n', 'latin1'), readFileSync(fake.at('config.yaml'))]);
  writeFileSync(fake.at('config.yaml'), bytes);
  await expect(pointAtShim(fake.site(), await kubelet())).rejects.toThrow(
    `${fake.at('config.yaml')} is not valid UTF-8`,
  );
  writeFileSync(fake.at('config.yaml'), Buffer.concat([bytes.subarray(0, 9), Buffer.from(HEAD + ours())]));
  await expect(pointAtContainerd(fake.site(), await kubelet())).rejects.toThrow('is not valid UTF-8');
  expect(readFileSync(fake.at('config.yaml')).subarray(0, 9)).toEqual(bytes.subarray(0, 9));
});

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
  expect(read('linked.yaml')).toBe(`# by kubeadm\ncontainerRuntimeEndpoint: "unix://${fake.node.listen}"\n`);
  expect(read(`linked.yaml${BACKUP}`)).toBe(before);
  expect(lstatSync(fake.at(`linked.yaml${BACKUP}`)).mode & 0o777).toBe(0o640);
  expect(await keepAtShim(fake.site(), await kubelet())).toEqual([]);
  await change!.undo();
  expect(read('linked.yaml')).toBe(before);
  expect(lstatSync(fake.at('linked.yaml')).mode & 0o777).toBe(0o640);
  expect(readlinkSync(fake.at('instance-config.yaml'))).toBe(fake.at('linked.yaml'));
  expect(existsSync(fake.at(`linked.yaml${BACKUP}`))).toBe(false);
});

test('kubeadm’s patch is not changed if a drop-in overrides the endpoint in config.yaml', async () => {
  fake.put('config.yaml', HEAD + containerd());
  fake.put('instance-config.yaml', containerd());
  fake.put('drop-ins/99-cri-resize-shim.conf', HEAD + ours());
  expect(await keepAtShim(fake.site(), await kubelet(fake.at('drop-ins')))).toEqual([]);
});

test('a file that has changed since the plan was made is not written; a new plan includes that change', async () => {
  fake.systemctl('exit 9');
  fake.put('config.yaml', HEAD + ours());
  fake.put('instance-config.yaml', containerd());
  const [install] = await keepAtShim(fake.site(), await kubelet());
  fake.put('instance-config.yaml', `${containerd()}maxPods: 250\n`);
  const changed = `${fake.at('instance-config.yaml')} has changed since it was read: try again`;
  await expect(install!.do()).rejects.toThrow(changed);
  await install!.undo();
  expect(read('instance-config.yaml')).toBe(`${containerd()}maxPods: 250\n`);
  expect(existsSync(fake.at(`instance-config.yaml${BACKUP}`))).toBe(false);
  await (await keepAtShim(fake.site(), await kubelet()))[0]!.do();
  expect(read('instance-config.yaml')).toBe(`${ours()}maxPods: 250\n`);
  expect(read(`instance-config.yaml${BACKUP}`)).toBe(`${containerd()}maxPods: 250\n`);

  fake.put('config.yaml', HEAD + containerd());
  const [removal] = await pointAtContainerd(fake.site(), await kubelet());
  fake.put('instance-config.yaml', `${ours()}maxPods: 300\n`);
  await expect(removal!.do()).rejects.toThrow(changed);
  await removal!.undo();
  expect(read('instance-config.yaml')).toBe(`${ours()}maxPods: 300\n`);
  expect(existsSync(fake.at(`instance-config.yaml${BACKUP}`))).toBe(true);
});

test('a rollback keeps later changes by other programs and restores only the endpoint', async () => {
  fake.put('config.yaml', HEAD + ours());
  fake.put('instance-config.yaml', containerd());
  const planned = async (): Promise<Change> => {
    const [change] = await keepAtShim(fake.site(), await kubelet());
    await change!.do();
    return change!;
  };
  const change = await planned();
  fake.put('instance-config.yaml', `${ours()}maxPods: 250\n`);
  await change.undo();
  expect(read('instance-config.yaml')).toBe(`${containerd()}maxPods: 250\n`);
  const overwritten = await planned();
  fake.put('instance-config.yaml', 'containerRuntimeEndpoint: unix:///run/other.sock\n');
  await overwritten.undo();
  expect(read('instance-config.yaml')).toBe('containerRuntimeEndpoint: unix:///run/other.sock\n');
});

test('a removal restores kubeadm’s patch without a restart, even if kubelet no longer uses the shim', async () => {
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

test('a file that release 0.1.0 edited, with the endpoint in another place, is restored byte for byte', async () => {
  fake.systemctl('exit 9');
  fake.put('config.yaml', HEAD + containerd());
  const before = '# ours\nmaxPods:   9\n';
  fake.put('instance-config.yaml', `# ours\n${ours()}maxPods:   9\n`);
  fake.put(`instance-config.yaml${BACKUP}`, before);
  await (await pointAtContainerd(fake.site(), await kubelet()))[0]!.do();
  expect(read('instance-config.yaml')).toBe(before);
});

test('a removal keeps changes since the installation, and sets containerd in a file without a backup', async () => {
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

test('the removal of our drop-in is described with the file and the restart of kubelet', async () => {
  fake.put('config.yaml', HEAD + containerd());
  fake.put('drop-ins/99-cri-resize-shim.conf', HEAD + ours());
  const [change, ...others] = await pointAtContainerd(fake.site(), await kubelet(fake.at('drop-ins')));
  expect(others).toEqual([]);
  expect(change!.description).toBe(`remove ${fake.at('drop-ins/99-cri-resize-shim.conf')} and restart kubelet.service`);
});

test('a removal sets containerd if the endpoint was set by hand through a link to the folder of the socket', async () => {
  symlinkSync(fake.folder, fake.at('link'));
  fake.put('config.yaml', `${HEAD}containerRuntimeEndpoint: unix://${fake.at('link/shim.sock')}\n`);
  const [change, ...others] = await pointAtContainerd(fake.site(), await kubelet());
  expect(others).toEqual([]);
  expect(change!.description).toBe(
    `set unix://${fake.node.containerd} in ${fake.at('config.yaml')} and restart kubelet.service`,
  );
});

test('a kubelet that does not run is rejected, unless it uses the shim and ends again after each start', async () => {
  const execStart = `ExecStart={ path=/usr/bin/kubelet ; argv[]=/usr/bin/kubelet --config=${fake.at('config.yaml')} ; ignore_errors=no ; pid=0 }`;
  const setup = async (state: string): Promise<unknown> => {
    fake.unit({ state, properties: ['SubState=auto-restart', execStart] });
    return runningKubelet(fake.site());
  };
  fake.put('config.yaml', HEAD + ours());
  expect(await setup('activating')).toMatchObject({
    endpoint: `unix://${fake.node.listen}`,
    chain: { winner: { file: fake.at('config.yaml') } },
  });
  await expect(setup('inactive')).rejects.toMatchObject({
    message: 'kubelet.service is inactive',
    remedy: 'systemctl start kubelet.service, and try again',
  });
  for (const text of [HEAD + containerd(), 'kind: Pod\n']) {
    fake.put('config.yaml', text);
    await expect(setup('activating')).rejects.toMatchObject({
      message: 'kubelet.service is activating',
      remedy: 'see journalctl -u kubelet.service, and try again when kubelet runs',
    });
  }
});
