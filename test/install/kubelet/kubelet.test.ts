import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { endpointIn, findKubelet, flagOf } from '../../../src/install/kubelet/kubelet.ts';
import { FakeInstallNode } from '../../support/fake-install-node.ts';

let paper: FakeInstallNode;
beforeEach(() => (paper = new FakeInstallNode()));
afterEach(() => paper.remove());

const config = (endpoint: string): string =>
  `apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n${endpoint}`;

describe('where kubelet has the runtime’s socket from', () => {
  test('a flag, which wins over the file', async () => {
    paper.put('proc/42/root/var/lib/kubelet/config.yaml', config('containerRuntimeEndpoint: unix:///file.sock\n'));
    const commandLine = ['/usr/bin/kubelet', '--config=/var/lib/kubelet/config.yaml'];
    paper.unit({ commandLine: [...commandLine, '--container-runtime-endpoint', 'unix:///flag.sock', '--v=2'] });
    expect(await findKubelet(paper.node)).toEqual({
      kind: 'running',
      pid: '42',
      kubelet: { endpoint: 'unix:///flag.sock', source: { kind: 'flag' } },
    });
  });

  test('the file, as its process sees it', async () => {
    paper.put('proc/42/root/etc/kubelet.yaml', config('containerRuntimeEndpoint: "unix:///file.sock"\n'));
    paper.put('proc/42/cwd/kubelet.yaml', config('containerRuntimeEndpoint: unix:///beside.sock\n'));
    for (const [file, endpoint] of [
      ['/etc/kubelet.yaml', 'unix:///file.sock'],
      ['kubelet.yaml', 'unix:///beside.sock'],
    ] as const) {
      paper.unit({ commandLine: ['kubelet', '--config', file] });
      expect(await findKubelet(paper.node)).toEqual({
        kind: 'running',
        pid: '42',
        kubelet: { endpoint, source: { kind: 'config', file } },
      });
    }
  });

  test('neither: its own default', async () => {
    paper.put('proc/42/root/etc/kubelet.yaml', config('containerRuntimeEndpoint: ""\n'));
    for (const [commandLine, source] of [
      [['kubelet', '--config=/etc/kubelet.yaml'], { kind: 'default', file: '/etc/kubelet.yaml' }],
      [['kubelet'], { kind: 'default' }],
    ] as const) {
      paper.unit({ commandLine });
      expect(await findKubelet(paper.node)).toEqual({
        kind: 'running',
        pid: '42',
        kubelet: { endpoint: 'unix:///run/containerd/containerd.sock', source },
      });
    }
  });

  test('cannot be told: the file is gone, or none of kubelet’s', async () => {
    paper.unit({ commandLine: ['kubelet', '--config=/etc/kubelet.yaml'] });
    expect(await findKubelet(paper.node)).toMatchObject({
      kind: 'unclear',
      why: expect.stringContaining('ENOENT') as string,
    });
    for (const [text, why] of [
      ['kind: Pod\n', '/etc/kubelet.yaml is not a KubeletConfiguration'],
      [config('containerRuntimeEndpoint: 7\n'), '/etc/kubelet.yaml: containerRuntimeEndpoint is not a string'],
    ] as const) {
      paper.put('proc/42/root/etc/kubelet.yaml', text);
      expect(await findKubelet(paper.node)).toEqual({ kind: 'unclear', why });
    }
  });
});

test('kubelet does not run, or has no unit of this name', async () => {
  paper.unit({ state: 'failed' });
  expect(await findKubelet(paper.node)).toEqual({ kind: 'stopped', state: 'failed' });
  paper.unit(undefined);
  expect(await findKubelet(paper.node)).toEqual({ kind: 'no unit' });
});

test('systemd that cannot be asked is said', async () => {
  paper.systemctl('echo "Failed to connect to bus" >&2; exit 1');
  await expect(findKubelet(paper.node)).rejects.toThrow('systemctl: Failed to connect to bus');
});

test('of a flag the last one counts', () => {
  expect(flagOf(['kubelet', '--a=1', '--a', '2', '--ab=3'], '--a')).toBe('2');
  expect(flagOf(['kubelet', '--a=x=y'], '--a')).toBe('x=y');
  expect(flagOf(['kubelet', '--a'], '--a')).toBeUndefined();
});

test('a file that is no YAML is an error', () => {
  expect(() => endpointIn('kind: [', 'f')).toThrow();
  expect(() => endpointIn('', 'f')).toThrow('f is not a KubeletConfiguration');
});
