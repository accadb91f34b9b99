import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Finding } from '../../../src/install/node/finding.ts';
import { diagnose } from '../../../src/install/node/checks.ts';
import { checkInstallation } from '../../../src/install/node/program.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

// Checks of doctor that read files of the node. test/e2e/systemd/operator.test.ts runs them on a node.
let fake: FakeInstallNode;
beforeEach(() => (fake = new FakeInstallNode()));
afterEach(() => fake.remove());

async function found(check: string): Promise<Finding> {
  const all = await diagnose(fake.node);
  return all.find((finding) => finding.check === check)!;
}

test('check configuration reads the file that an installation would use, as long as the service has no flags file', async () => {
  fake.put('etc/config.yaml', 'unknownKey: 1\n');
  expect(await found('configuration')).toMatchObject({
    result: 'failed',
    found: expect.stringContaining(`${fake.at('etc/config.yaml')}:1:1: unknownKey: unknown key`) as string,
  });
  fake.put('etc/flags', 'CRI_RESIZE_SHIM_FLAGS=\n');
  expect(await found('configuration')).toMatchObject({ result: 'ok', found: 'no file: the defaults apply' });
});

test('check configuration reads the file that the service names', async () => {
  expect(await found('configuration')).toMatchObject({ result: 'ok', found: 'no file: the defaults apply' });
  fake.put('etc/flags', `CRI_RESIZE_SHIM_FLAGS="--config ${fake.at('config.yaml')}"\n`);
  expect(await found('configuration')).toMatchObject({
    result: 'failed',
    found: expect.stringContaining('no such file') as string,
  });
  fake.put('config.yaml', 'intercept: false\n');
  expect(await found('configuration')).toMatchObject({
    result: 'ok',
    found: `${fake.at('config.yaml')}, valid, off by configuration (intercept: false)`,
  });
  fake.put('config.yaml', 'a: 1\nb: 2\nc: 3\nd: 4\n');
  const { result, found: says } = await found('configuration');
  expect(result).toBe('failed');
  expect(says).toMatch(/config\.yaml:1:1: a: unknown key.*; and 1 more$/);
  fake.put('etc/flags', 'CRI_RESIZE_SHIM_FLAGS=--log-level=loud\n');
  expect(await found('configuration')).toMatchObject({
    result: 'failed',
    found: expect.stringContaining(`${fake.at('etc/flags')}: --log-level: "loud" must be`) as string,
  });
});

test('check kubelet runtime does not blame the shim if containerd does not answer', async () => {
  expect(await found('kubelet runtime')).toMatchObject({
    result: 'ok',
    found: `kubelet does not use ${fake.node.listen}`,
  });
  fake.put('kubelet/config.yaml', `containerRuntimeEndpoint: unix://${fake.node.listen}\n`);
  expect(await found('kubelet runtime')).toMatchObject({
    result: 'ok',
    found: 'not checked: containerd does not answer either',
  });
});

test('check installation warns about two installations', async () => {
  const folders = { package: fake.at('package'), own: fake.at('own') };
  expect(await checkInstallation(folders)).toMatchObject({ result: 'ok', found: 'none' });
  fake.put('package/package.json', '{}');
  expect(await checkInstallation(folders)).toMatchObject({ result: 'ok', found: `package at ${folders.package}` });
  fake.put('own/package.json', '{}');
  const both = await checkInstallation(folders);
  expect(both.result).toBe('warning');
  expect(both.found).toContain(folders.package);
  expect(both.found).toContain(folders.own);
});
