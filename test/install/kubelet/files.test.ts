import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { settingOf } from '../../../src/install/kubelet/files.ts';
import type { EndpointSource } from '../../../src/install/kubelet/kubelet.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

const CONTAINERD = 'unix:///run/containerd/containerd.sock';
const FLAG = `--container-runtime-endpoint=${CONTAINERD}`;
let fake: FakeInstallNode;
beforeEach(() => (fake = new FakeInstallNode()));
afterEach(() => fake.remove());

/** Fakes kubelet's unit: a file, a drop-in and two environment files, of which one is missing. */
function unit(texts: { readonly unit?: string; readonly dropIn?: string; readonly environment?: string }): void {
  const at = (name: string): string => join(fake.folder, name);
  fake.put('kubelet.service', texts.unit ?? '');
  fake.put('kubelet.conf', texts.dropIn ?? '');
  fake.put('flags.env', texts.environment ?? '');
  fake.systemctl(`cat <<'END'
FragmentPath=${at('kubelet.service')}
DropInPaths=${at('kubelet.conf')} ${at('gone.conf')}
EnvironmentFiles=${at('flags.env')} (ignore_errors=yes)
EnvironmentFiles=${at('none.env')} (ignore_errors=no)
END`);
}
const setting = (source: EndpointSource) => settingOf(fake.node, { endpoint: CONTAINERD, source }, 'unix:///ours.sock');

test.each([
  ['unit', 'kubelet.service', true],
  ['dropIn', 'kubelet.conf', true],
  ['environment', 'flags.env', false],
] as const)('a flag in the %s of kubelet’s unit is found in %s', async (place, name, isOfUnit) => {
  unit({ [place]: `X="${FLAG}"\n` });
  const found = await setting({ kind: 'flag' });
  expect(found).toMatchObject({ file: join(fake.folder, name), isOfUnit });
  expect(found.edited(found.text, 'unix:///ours.sock')).toBe('X="--container-runtime-endpoint=unix:///ours.sock"\n');
  expect(found.endpointOf(found.text)).toBe(CONTAINERD);
});

test('a flag in several files, in none, or with another value is rejected, with the files and a remedy', async () => {
  unit({ unit: FLAG, environment: FLAG });
  await expect(setting({ kind: 'flag' })).rejects.toMatchObject({
    message: expect.stringMatching(/several places of kubelet.service: .*kubelet\.service, .*flags\.env$/) as string,
    remedy: expect.stringContaining('set --container-runtime-endpoint=unix:///ours.sock manually') as string,
  });
  unit({});
  await expect(setting({ kind: 'flag' })).rejects.toThrow(/in none of kubelet.service's files: .*kubelet.conf/);
  unit({ unit: '--container-runtime-endpoint=$RUNTIME' });
  await expect(setting({ kind: 'flag' })).rejects.toThrow(
    `has --container-runtime-endpoint=$RUNTIME, but kubelet runs`,
  );
});

test('a default endpoint without flag and file, and a relative file, are rejected', async () => {
  await expect(setting({ kind: 'default' })).rejects.toThrow('kubelet.service has neither --config nor');
  await expect(setting({ kind: 'config', file: 'kubelet.yaml' })).rejects.toThrow('has a relative path');
});
