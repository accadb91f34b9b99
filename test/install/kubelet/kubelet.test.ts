import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { endpointIn, findKubelet, flagOf } from '../../../src/install/kubelet/kubelet.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

let fake: FakeInstallNode;
beforeEach(() => (fake = new FakeInstallNode()));
afterEach(() => fake.remove());

const config = (endpoint: string): string =>
  `apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n${endpoint}`;

describe('the runtime endpoint of kubelet comes from', () => {
  test('the flag, which overrides the file', async () => {
    fake.put('proc/42/root/var/lib/kubelet/config.yaml', config('containerRuntimeEndpoint: unix:///file.sock\n'));
    const commandLine = ['/usr/bin/kubelet', '--config=/var/lib/kubelet/config.yaml'];
    fake.unit({ commandLine: [...commandLine, '--container-runtime-endpoint', 'unix:///flag.sock', '--v=2'] });
    expect(await findKubelet(fake.node)).toEqual({
      kind: 'running',
      pid: '42',
      kubelet: { endpoint: 'unix:///flag.sock', source: { kind: 'flag' } },
    });
  });

  test('the file, as kubelet’s process sees it', async () => {
    fake.put('proc/42/root/etc/kubelet.yaml', config('containerRuntimeEndpoint: "unix:///file.sock"\n'));
    fake.put('proc/42/cwd/kubelet.yaml', config('containerRuntimeEndpoint: unix:///relative.sock\n'));
    for (const [file, endpoint] of [
      ['/etc/kubelet.yaml', 'unix:///file.sock'],
      ['kubelet.yaml', 'unix:///relative.sock'],
    ] as const) {
      fake.unit({ commandLine: ['kubelet', '--config', file] });
      expect(await findKubelet(fake.node)).toEqual({
        kind: 'running',
        pid: '42',
        kubelet: { endpoint, source: { kind: 'config', file } },
      });
    }
  });

  test('kubelet’s default without flag and file', async () => {
    fake.put('proc/42/root/etc/kubelet.yaml', config('containerRuntimeEndpoint: ""\n'));
    for (const [commandLine, source] of [
      [['kubelet', '--config=/etc/kubelet.yaml'], { kind: 'default', file: '/etc/kubelet.yaml' }],
      [['kubelet'], { kind: 'default' }],
    ] as const) {
      fake.unit({ commandLine });
      expect(await findKubelet(fake.node)).toEqual({
        kind: 'running',
        pid: '42',
        kubelet: { endpoint: 'unix:///run/containerd/containerd.sock', source },
      });
    }
  });

  test('an unclear source if the file is missing or is no KubeletConfiguration', async () => {
    fake.unit({ commandLine: ['kubelet', '--config=/etc/kubelet.yaml'] });
    expect(await findKubelet(fake.node)).toMatchObject({
      kind: 'unclear',
      why: expect.stringContaining('ENOENT') as string,
    });
    for (const [text, why] of [
      ['kind: Pod\n', '/etc/kubelet.yaml is not a KubeletConfiguration'],
      [config('containerRuntimeEndpoint: 7\n'), '/etc/kubelet.yaml: containerRuntimeEndpoint is not a string'],
    ] as const) {
      fake.put('proc/42/root/etc/kubelet.yaml', text);
      expect(await findKubelet(fake.node)).toEqual({ kind: 'unclear', why });
    }
  });
});

test('a stopped kubelet and a missing unit are reported', async () => {
  fake.unit({ state: 'failed' });
  expect(await findKubelet(fake.node)).toEqual({ kind: 'stopped', state: 'failed' });
  fake.unit(undefined);
  expect(await findKubelet(fake.node)).toEqual({ kind: 'no unit' });
});

test('an error of systemctl is thrown', async () => {
  fake.systemctl('echo "Failed to connect to bus" >&2; exit 1');
  await expect(findKubelet(fake.node)).rejects.toThrow('systemctl: Failed to connect to bus');
});

test('the last occurrence of a flag counts', () => {
  expect(flagOf(['kubelet', '--a=1', '--a', '2', '--ab=3'], '--a')).toBe('2');
  expect(flagOf(['kubelet', '--a=x=y'], '--a')).toBe('x=y');
  expect(flagOf(['kubelet', '--a'], '--a')).toBeUndefined();
});

test('a file that is no KubeletConfiguration is an error', () => {
  expect(() => endpointIn('kind: [', 'f')).toThrow();
  expect(() => endpointIn('', 'f')).toThrow('f is not a KubeletConfiguration');
});
