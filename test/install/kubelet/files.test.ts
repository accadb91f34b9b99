import { symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Setting, settingsInUse, settingsToChange } from '../../../src/install/kubelet/files.ts';
import type { Kubelet } from '../../../src/install/kubelet/kubelet.ts';
import { readEndpointChain } from '../../../src/kubelet/endpoint/chain.ts';
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
interface Flags {
  readonly endpoint?: string;
  readonly config?: string;
  readonly configDir?: string;
}
async function kubelet(flags: Flags): Promise<Kubelet> {
  const none = { endpoint: undefined, config: undefined, configDir: undefined };
  const chain = await readEndpointChain({ ...none, ...flags }, { root: '', cwd: fake.folder });
  return { endpoint: chain.endpoint!, chain };
}
const toChange = async (flags: Flags) => settingsToChange(fake.node, await kubelet(flags), 'unix:///ours.sock');
async function setting(flags: Flags): Promise<Setting> {
  const found = await toChange(flags);
  expect(found).toHaveLength(1);
  return found[0]!;
}
const config = (line = ''): string =>
  `apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n${line}\n`;
const sets = (name: string): string => config(`containerRuntimeEndpoint: unix:///${name}.sock`);

test.each([
  ['unit', 'kubelet.service', true],
  ['dropIn', 'kubelet.conf', true],
  ['environment', 'flags.env', false],
] as const)('a flag in the %s of kubelet’s unit is found in %s', async (place, name, isOfUnit) => {
  unit({ [place]: `X="${FLAG}"\n` });
  const found = await setting({ endpoint: CONTAINERD });
  expect(found).toMatchObject({ file: join(fake.folder, name), isOfUnit });
  expect(found.edited(found.text!, 'unix:///ours.sock')).toBe('X="--container-runtime-endpoint=unix:///ours.sock"\n');
  expect(found.endpointOf(found.text!)).toBe(CONTAINERD);
});

test('a flag is found in a value of several lines, in an environment file that matches a pattern', async () => {
  const text = `X="--v=2\n${FLAG}"\n`;
  fake.put('envs/10.env', 'Y=1\n');
  fake.put('envs/20.env', text);
  fake.systemctl(`echo "EnvironmentFiles=${fake.at('envs/*.env')} (ignore_errors=no)"`);
  const found = await setting({ endpoint: CONTAINERD });
  expect(found).toMatchObject({ file: fake.at('envs/20.env'), isOfUnit: false, text });
  expect(found.edited(text, 'unix:///ours.sock')).toBe('X="--v=2\n--container-runtime-endpoint=unix:///ours.sock"\n');
});

test('install: a flag in several files, in none, or with another value is left to the administrator, with the files and a remedy', async () => {
  unit({ unit: FLAG, environment: FLAG });
  await expect(setting({ endpoint: CONTAINERD })).rejects.toMatchObject({
    message: expect.stringMatching(/several places of kubelet.service: .*kubelet\.service, .*flags\.env$/) as string,
    remedy: expect.stringContaining('set --container-runtime-endpoint=unix:///ours.sock manually') as string,
  });
  unit({});
  await expect(setting({ endpoint: CONTAINERD })).rejects.toThrow(/in none of kubelet.service's files: .*kubelet.conf/);
  unit({ unit: '--container-runtime-endpoint=$RUNTIME' });
  await expect(setting({ endpoint: CONTAINERD })).rejects.toThrow(
    `has --container-runtime-endpoint=$RUNTIME, but kubelet runs`,
  );
});

test('a kubelet without a configuration file, or with a relative path to it, is rejected', async () => {
  await expect(setting({})).rejects.toThrow('kubelet.service has neither --config nor');
  fake.put('kubelet.yaml', config());
  fake.put('drop-ins/1.conf', config());
  await expect(setting({ config: 'kubelet.yaml' })).rejects.toThrow('has a relative path: kubelet.yaml');
  await expect(setting({ configDir: 'drop-ins' })).rejects.toThrow('has a relative path: drop-ins');
});

test('kubeadm’s patch is changed together with config.yaml, in each form', async () => {
  fake.put('config.yaml', sets('containerd'));
  for (const [patch, edited] of [
    ['containerRuntimeEndpoint: "unix:///containerd.sock"\n', 'containerRuntimeEndpoint: "unix:///ours.sock"\n'],
    ['# by kubeadm\nmaxPods: 9\n', '# by kubeadm\nmaxPods: 9\ncontainerRuntimeEndpoint: unix:///ours.sock\n'],
    ['# nothing', '# nothing\n\ncontainerRuntimeEndpoint: unix:///ours.sock\n'],
    ['', 'containerRuntimeEndpoint: unix:///ours.sock\n'],
    ['{}', '{"containerRuntimeEndpoint":"unix:///ours.sock"}'],
    ['{"maxPods": 9}', '{"maxPods":9,"containerRuntimeEndpoint":"unix:///ours.sock"}'],
  ] as const) {
    fake.put('instance-config.yaml', patch);
    const found = await toChange({ config: fake.at('config.yaml') });
    expect(found.map(({ file }) => file)).toEqual([fake.at('config.yaml'), fake.at('instance-config.yaml')]);
    expect(found[1]!.edited(patch, 'unix:///ours.sock')).toBe(edited);
  }
  fake.put('instance-config.yaml', '[');
  await expect(toChange({ config: fake.at('config.yaml') })).rejects.toMatchObject({
    message: expect.stringContaining('instance-config.yaml is not valid YAML') as string,
    remedy: `repair ${fake.at('instance-config.yaml')}: kubeadm upgrade node fails with it`,
  });
});

test('a folder of drop-ins gets one of the shim, which kubelet reads last, and no other file changes', async () => {
  fake.put('config.yaml', sets('containerd'));
  fake.put('instance-config.yaml', sets('containerd'));
  fake.put('drop-ins/50-other.conf', sets('other'));
  fake.put('drop-ins/zzz.conf', config('maxPods: 9'));
  const flags = { config: fake.at('config.yaml'), configDir: fake.at('drop-ins') };
  const found = await setting(flags);
  expect(found).toMatchObject({ file: fake.at('drop-ins/99-cri-resize-shim.conf'), text: undefined, isOwn: true });
  const written = found.edited('', 'unix:///ours.sock');
  fake.put('drop-ins/99-cri-resize-shim.conf', written);
  expect((await kubelet(flags)).endpoint).toBe('unix:///ours.sock');
  expect(await setting(flags)).toMatchObject({ text: written });
});

test('if another drop-in is read later, ours gets another name, or the installation is rejected with the file', async () => {
  fake.put('drop-ins/a.conf', sets('other'));
  const flags = { configDir: fake.at('drop-ins') };
  expect(await setting(flags)).toMatchObject({ file: fake.at('drop-ins/zz-cri-resize-shim.conf') });
  fake.put('drop-ins/zz/1.conf', sets('other'));
  expect(await setting(flags)).toMatchObject({ file: fake.at('drop-ins/zz-cri-resize-shim.conf') });
  fake.put('drop-ins/zz-z.conf', sets('other'));
  await expect(setting(flags)).rejects.toMatchObject({
    message: `${fake.at('drop-ins/zz-z.conf')} sets containerRuntimeEndpoint, and kubelet reads it after 99-cri-resize-shim.conf and zz-cri-resize-shim.conf`,
    remedy: expect.stringContaining('set unix:///ours.sock there manually') as string,
  });
});

test('a removal checks each file that kubelet or kubeadm reads, except a relative path without our endpoint', async () => {
  fake.put('config.yaml', sets('containerd'));
  fake.put('instance-config.yaml', '');
  fake.put('drop-ins/1.conf', sets('other'));
  const inUse = async (flags: Flags): Promise<readonly string[]> =>
    (await settingsInUse(fake.node, await kubelet(flags), CONTAINERD)).map(({ file }) => file);
  const files = ['config.yaml', 'drop-ins/1.conf', 'instance-config.yaml'].map((name) => fake.at(name));
  expect(await inUse({ config: fake.at('config.yaml'), configDir: fake.at('drop-ins') })).toEqual(files);
  expect(await inUse({ config: 'config.yaml', configDir: fake.at('drop-ins') })).toEqual([files[1]]);
  fake.put('config.yaml', config(`containerRuntimeEndpoint: unix://${fake.node.listen}`));
  await expect(inUse({ config: 'config.yaml' })).rejects.toThrow('has a relative path: config.yaml');
});

test('a removal checks a flag only if it has our endpoint', async () => {
  unit({ unit: FLAG, environment: FLAG });
  expect(await settingsInUse(fake.node, await kubelet({ endpoint: CONTAINERD }), CONTAINERD)).toEqual([]);
  symlinkSync(fake.folder, fake.at('link'));
  const ours = `unix://${fake.at('link')}/shim.sock`;
  unit({ unit: `--container-runtime-endpoint=${ours}` });
  const [found, ...others] = await settingsInUse(fake.node, await kubelet({ endpoint: ours }), CONTAINERD);
  expect(found).toMatchObject({ file: fake.at('kubelet.service'), isOfUnit: true });
  expect(others).toEqual([]);
});
