import { mkdirSync, rmSync, symlinkSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { driftOf } from '../../../src/kubelet/endpoint/drift.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

const ENABLED = 'host/etc/systemd/system/multi-user.target.wants';
const USED = 'host/state/kubelet-uses-the-shim';
const PAST = 'unix:///run/containerd/containerd.sock';
let fake: FakeInstallNode;
beforeEach(() => {
  fake = new FakeInstallNode();
  mkdirSync(fake.at(ENABLED), { recursive: true });
  symlinkSync('/nowhere', fake.at(`${ENABLED}/cri-resize-shim.service`));
  fake.put(USED, '');
});
afterEach(() => fake.remove());

/** Looks at a kubelet whose flag has this endpoint. */
async function drift(endpoint: string) {
  fake.put('proc/42/cmdline', `kubelet\0--container-runtime-endpoint=${endpoint}\0`);
  const { procRoot, listen } = fake.node;
  return driftOf({ procRoot, listen, hostRoot: fake.at('host'), stateFolder: '/state' });
}

test('a kubelet that bypasses the shim is a drift while the shim is enabled and was used', async () => {
  expect(await drift(PAST)).toEqual({
    state: 'past',
    note: `kubelet is configured to use ${PAST}, not the shim, set by --container-runtime-endpoint`,
  });
});

test.each([`${ENABLED}/cri-resize-shim.service`, USED])(
  'a kubelet that bypasses the shim after an uninstallation does not count as drift: without %s',
  async (file) => {
    rmSync(fake.at(file));
    expect(await drift(PAST)).toEqual({ state: 'unknown', note: 'kubelet is not expected to use the shim' });
    expect(await drift(`unix://${fake.node.listen}`)).toMatchObject({ state: 'shim' });
  },
);

test("recognizes the shim's socket through a link to its folder", async () => {
  symlinkSync(fake.folder, fake.at('link'));
  expect(await drift(`unix://${fake.at('link/shim.sock')}`)).toMatchObject({ state: 'shim' });
});

const places = (stateFolder = '/state') => {
  const { procRoot, listen } = fake.node;
  return { procRoot, listen, hostRoot: fake.at('host'), stateFolder };
};

test('absolute link targets are resolved in the root of the host, not of the pod', async () => {
  fake.put('proc/42/cmdline', 'kubelet\0--config=/var/lib/kubelet/config.yaml\0');
  fake.put('proc/42/root/data/config.yaml', `kind: KubeletConfiguration\ncontainerRuntimeEndpoint: ${PAST}\n`);
  mkdirSync(fake.at('proc/42/root/var/lib'), { recursive: true });
  symlinkSync('/data', fake.at('proc/42/root/var/lib/kubelet'));
  symlinkSync('/state', fake.at('host/linked'));
  expect(await driftOf(places('/linked'))).toEqual({
    state: 'past',
    note: `kubelet is configured to use ${PAST}, not the shim, set by /var/lib/kubelet/config.yaml`,
  });
});

test("recognizes the shim's socket through a link that exists only on the host", async () => {
  mkdirSync(fake.at('proc/42/root/var'), { recursive: true });
  symlinkSync(fake.folder, fake.at('proc/42/root/var/linked'));
  expect(await drift('unix:///var/linked/shim.sock')).toMatchObject({ state: 'shim' });
});

test('the drift is unknown if no kubelet runs', async () => {
  rmSync(fake.at('proc/42'), { recursive: true });
  expect(await driftOf(places())).toEqual({ state: 'unknown', note: 'no kubelet runs' });
});

test('a file of kubelet that cannot be read is an error, unless kubelet is not expected to use the shim', async () => {
  fake.put('proc/42/cmdline', 'kubelet\0--config=/gone.yaml\0');
  await expect(driftOf(places())).rejects.toThrow('/gone.yaml does not exist');
  rmSync(fake.at(USED));
  expect(await driftOf(places())).toEqual({ state: 'unknown', note: 'kubelet is not expected to use the shim' });
});

test('a folder of the host that cannot be read is an error', async () => {
  rmSync(fake.at(ENABLED), { recursive: true });
  fake.put(ENABLED, '');
  await expect(drift(PAST)).rejects.toThrow('ENOTDIR');
});
