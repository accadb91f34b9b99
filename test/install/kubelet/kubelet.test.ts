import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { KubeletFound } from '../../../src/install/kubelet/kubelet.ts';
import {
  chainLines,
  environmentFilesOf,
  findKubelet,
  readEnvironment,
  readStoppedKubelet,
} from '../../../src/install/kubelet/kubelet.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

let fake: FakeInstallNode;

afterEach(() => fake.remove());

describe('runtime endpoint of kubelet', () => {
  beforeEach(() => (fake = new FakeInstallNode()));

  const config = (endpoint: string): string =>
    `apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n${endpoint}`;
  const sets = (name: string): string => config(`containerRuntimeEndpoint: unix:///${name}.sock\n`);

  /** The result of findKubelet for a kubelet with this endpoint. */
  const running = (endpoint: string, winner: object, pid = '42'): object => ({
    kind: 'running',
    pid,
    kubelet: { endpoint, chain: { winner } },
  });

  describe('the source of kubelet’s runtime endpoint', () => {
    test('the runtime endpoint comes from the flag, which overrides the file', async () => {
      fake.put('proc/42/root/var/lib/kubelet/config.yaml', sets('file'));
      const commandLine = ['/usr/bin/kubelet', '--config=/var/lib/kubelet/config.yaml'];
      fake.unit({ commandLine: [...commandLine, '--container-runtime-endpoint', 'unix:///flag.sock', '--v=2'] });
      expect(await findKubelet(fake.node)).toMatchObject(running('unix:///flag.sock', { kind: 'flag' }));
    });

    test('the runtime endpoint comes from the file as kubelet’s process sees it', async () => {
      fake.put('proc/42/root/etc/kubelet.yaml', config('containerRuntimeEndpoint: "unix:///file.sock"\n'));
      fake.put('proc/42/cwd/kubelet.yaml', sets('relative'));
      for (const [file, endpoint] of [
        ['/etc/kubelet.yaml', 'unix:///file.sock'],
        ['kubelet.yaml', 'unix:///relative.sock'],
      ] as const) {
        fake.unit({ commandLine: ['kubelet', '--config', file] });
        expect(await findKubelet(fake.node)).toMatchObject(running(endpoint, { kind: 'config', file }));
      }
    });

    test('the runtime endpoint comes from the drop-in that kubelet reads last', async () => {
      fake.put('proc/42/root/etc/kubelet.yaml', sets('file'));
      fake.put('proc/42/root/etc/drop-ins/1.conf', sets('one'));
      fake.put('proc/42/root/etc/drop-ins/2.conf', sets('two'));
      fake.unit({ commandLine: ['kubelet', '--config', '/etc/kubelet.yaml', '--config-dir', '/etc/drop-ins'] });
      const file = '/etc/drop-ins/2.conf';
      expect(await findKubelet(fake.node)).toMatchObject(running('unix:///two.sock', { kind: 'drop-in', file }));
    });

    test('the runtime endpoint is kubelet’s default if neither flag nor file sets it', async () => {
      fake.put('proc/42/root/etc/kubelet.yaml', config('containerRuntimeEndpoint: ""\n'));
      for (const commandLine of [['kubelet', '--config=/etc/kubelet.yaml'], ['kubelet']]) {
        fake.unit({ commandLine });
        expect(await findKubelet(fake.node)).toMatchObject(
          running('unix:///run/containerd/containerd.sock', { kind: 'default' }),
        );
      }
    });

    test('the runtime endpoint of k3s comes from its drop-ins, because its process hides the flags of kubelet', async () => {
      const file = '/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/00-k3s-defaults.conf';
      fake.process(42, 'k3s-server');
      fake.put(`proc/42/root/${file}`, sets('k3s'));
      fake.unit({ commandLine: ['/usr/local/bin/k3s server'] });
      expect(await findKubelet(fake.node)).toMatchObject(running('unix:///k3s.sock', { kind: 'drop-in', file }));
    });

    test('the runtime endpoint comes from a kubelet that the main process of a unit has started, as in RKE2', async () => {
      fake.unit({ commandLine: ['/usr/local/bin/rke2 server'] });
      fake.process(42, 'rke2');
      fake.process(7, 'kubelet', { parent: 6 });
      fake.process(43, 'kubelet', { parent: 42 });
      fake.put('proc/7/cmdline', 'kubelet\0--container-runtime-endpoint=unix:///other.sock\0');
      fake.put('proc/43/cmdline', 'kubelet\0--config-dir=/etc/drop-ins\0');
      fake.put('proc/43/root/etc/drop-ins/1.conf', sets('child'));
      expect(await findKubelet(fake.node)).toMatchObject(running('unix:///child.sock', { kind: 'drop-in' }));
    });
  });

  test('a kubelet that systemd has just begun to start is read again until it has its command line', async () => {
    fake.unit({ commandLine: ['kubelet', '--container-runtime-endpoint=unix:///flag.sock'] });
    fake.process(42, '(kubelet)');
    // The second check finds the unit's program.
    const second = `[ -e ${fake.at('looked')} ] && echo kubelet > ${fake.at('proc/42/comm')}`;
    fake.systemctl(`${second}; touch ${fake.at('looked')}; cat ${fake.at('properties')}`);
    expect(await findKubelet(fake.node)).toMatchObject(running('unix:///flag.sock', { kind: 'flag' }));
    fake.systemctl(`cat ${fake.at('properties')}`);
    fake.process(42, '(kubelet)');
    expect(await findKubelet(fake.node)).toEqual({
      kind: 'unclear',
      why: 'process 42 has not started kubelet, or starts and ends too fast',
    });
  });

  test('the endpoint is unclear if a file is missing or is not a KubeletConfiguration, and the chain is still returned', async () => {
    fake.unit({ commandLine: ['kubelet', '--config=/etc/kubelet.yaml'] });
    expect(await findKubelet(fake.node)).toMatchObject({
      kind: 'unclear',
      why: '/etc/kubelet.yaml does not exist',
    });
    for (const [text, why] of [
      ['kind: Pod\n', '/etc/kubelet.yaml is not a KubeletConfiguration'],
      [config('containerRuntimeEndpoint: 7\n'), '/etc/kubelet.yaml: containerRuntimeEndpoint is not a string'],
    ] as const) {
      fake.put('proc/42/root/etc/kubelet.yaml', text);
      expect(await findKubelet(fake.node)).toMatchObject({ kind: 'unclear', why, chain: { endpoint: undefined } });
    }
  });

  test('the places of the endpoint are listed in the order in which kubelet reads them, with the winner marked', async () => {
    fake.put('proc/42/root/k/config.yaml', sets('file'));
    fake.put('proc/42/root/k/instance-config.yaml', 'containerRuntimeEndpoint: unix:///next.sock\n');
    fake.put('proc/42/root/d/1.conf', config('maxPods: 9\n'));
    fake.unit({ commandLine: ['kubelet', '--config=/k/config.yaml', '--config-dir=/d'] });
    const chainOf = (found: KubeletFound) => ('kubelet' in found ? found.kubelet.chain : undefined)!;
    expect(chainLines(chainOf(await findKubelet(fake.node)))).toEqual([
      'the default of kubelet: unix:///run/containerd/containerd.sock',
      '/k/config.yaml: unix:///file.sock (wins)',
      '/d/1.conf: not set',
      '/k/instance-config.yaml: unix:///next.sock (kubeadm applies it at its next upgrade)',
    ]);
  });

  test('a stopped kubelet and a missing unit are reported', async () => {
    fake.unit({ state: 'failed' });
    expect(await findKubelet(fake.node)).toEqual({ kind: 'stopped', state: 'failed' });
    fake.unit(undefined);
    expect(await findKubelet(fake.node)).toEqual({ kind: 'no unit' });
  });

  describe('the setup of a stopped kubelet', () => {
    const unit = (command: string, ...properties: readonly string[]): void => {
      const execStart = `ExecStart={ path=${command.split(' ', 1)[0] ?? ''} ; argv[]=${command} ; ignore_errors=no ; pid=0 }`;
      fake.unit({ state: 'inactive', properties: [execStart, ...properties] });
    };
    const endpoint = async (): Promise<string | undefined> => (await readStoppedKubelet(fake.node)).chain?.endpoint;
    const flag = (name: string): string => `--container-runtime-endpoint=unix:///${name}.sock`;

    test('the setup of a stopped kubelet uses the variables that systemd passes, without those that the unit unsets', async () => {
      fake.put('proc/1/environ', `PASSED=${flag('passed')}\0OTHER=${flag('other')}\0`);
      unit('/usr/bin/kubelet $PASSED $OTHER $FROM_MANAGER', 'PassEnvironment=PASSED NONE');
      expect(await endpoint()).toBe('unix:///passed.sock');
      unit('/usr/bin/kubelet $A $B', `Environment=A=${flag('a')} B=${flag('b')}`, 'UnsetEnvironment=B');
      expect(await endpoint()).toBe('unix:///a.sock');
    });

    test('the setup of a stopped kubelet resolves a relative path in the working directory of the unit', async () => {
      fake.put('work/kubelet.yaml', sets('relative'));
      for (const prefix of ['', '!']) {
        unit('/usr/bin/kubelet --config=kubelet.yaml', `WorkingDirectory=${prefix}${fake.at('work')}`);
        expect(await endpoint()).toBe('unix:///relative.sock');
      }
    });

    test('the setup of a stopped kubelet is read behind a wrapper, but not from a command for a shell', async () => {
      fake.put('bin/kubelet', '');
      unit(`/usr/bin/nice -n -5 ${fake.at('bin/kubelet')} ${flag('nice')}`);
      expect(await endpoint()).toBe('unix:///nice.sock');
      unit(`/bin/sh -c exec ${fake.at('bin/kubelet')} ${flag('shell')}`);
      expect(await readStoppedKubelet(fake.node)).toEqual({ chain: undefined });
      unit(`/usr/bin/other --folder /var/lib/kubelet ${flag('other')}`);
      expect(await readStoppedKubelet(fake.node)).toEqual({ chain: undefined });
    });
  });

  test('an error of systemctl is thrown', async () => {
    fake.systemctl('echo "Failed to connect to bus" >&2; exit 1');
    await expect(findKubelet(fake.node)).rejects.toThrow('systemctl: Failed to connect to bus');
  });
});

describe('environment files of the unit', () => {
  beforeEach(() => {
    fake = new FakeInstallNode();
    fake.put('envs/b.env', 'A=b\n');
    fake.put('envs/B.env', 'A=B\n');
    fake.put('envs/.hidden.env', 'A=hidden\n');
    mkdirSync(fake.at('envs/folder'));
    writeFileSync(fake.at('envs/latin1'), Buffer.from('A=\u00e4\n', 'latin1'));
  });

  const entry = (name: string, ignores = 'no'): string => `${fake.at(name)} (ignore_errors=${ignores})`;

  test('a pattern expands to its files in byte order, and an optional pattern may match no file', async () => {
    const files = await environmentFilesOf(['', entry('envs/*.env', 'yes'), entry('none/*', 'yes'), entry('none')]);
    expect(files).toEqual([
      { file: fake.at('envs/B.env'), isOptional: true },
      { file: fake.at('envs/b.env'), isOptional: true },
      { file: fake.at('none'), isOptional: false },
    ]);
    expect(await readEnvironment([entry('envs/*.env'), entry('none', 'yes')])).toEqual(['A=B\n', 'A=b\n']);
  });

  test.each([
    ['none', 'does not exist'],
    ['none/*.env', 'does not exist'],
    ['envs/folder', 'is not a regular file'],
    ['envs/latin1', 'the value of A is not valid UTF-8'],
  ])('a unit with the unusable environment file %s starts only if the file is optional', async (name, why) => {
    const file = fake.at(name);
    expect(await readEnvironment([entry('envs/b.env'), entry(name)])).toEqual({
      file,
      problem: `${file}${why.startsWith('the ') ? ': ' : ' '}${why}`,
    });
    expect(await readEnvironment([entry('envs/b.env'), entry(name, 'yes')])).toEqual(['A=b\n']);
  });

  test('a unit starts if an environment file has a comment with invalid UTF-8 or is a link to /dev/null', async () => {
    writeFileSync(fake.at('envs/comment'), Buffer.from('# gr\u00fcn\nA=\n', 'latin1'));
    symlinkSync('/dev/null', fake.at('envs/empty'));
    expect(await readEnvironment([entry('envs/comment'), entry('envs/empty'), '/dev/null (ignore_errors=no)'])).toEqual(
      ['# gr\ufffdn\nA=\n', '', ''],
    );
  });
});
