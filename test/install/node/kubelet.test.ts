import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { endpointIn, findKubelet, flagOf } from '../../../src/install/node/kubelet.ts';
import { PaperNode } from '../../support/fake-install-node.ts';

let paper: PaperNode;
beforeEach(() => (paper = new PaperNode()));
afterEach(() => paper.remove());

const config = (endpoint: string): string =>
  `apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n${endpoint}`;

describe('where kubelet has the runtime’s socket from', () => {
  it('a flag, which wins over the file', async () => {
    paper.put('proc/42/root/var/lib/kubelet/config.yaml', config('containerRuntimeEndpoint: unix:///file.sock\n'));
    const commandLine = ['/usr/bin/kubelet', '--config=/var/lib/kubelet/config.yaml'];
    paper.unit({ commandLine: [...commandLine, '--container-runtime-endpoint', 'unix:///flag.sock', '--v=2'] });
    expect(await findKubelet(paper.node)).toEqual({
      kind: 'running',
      pid: '42',
      kubelet: { endpoint: 'unix:///flag.sock', source: { kind: 'flag' } },
    });
  });

  it('the file, as its process sees it', async () => {
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

  it('neither: its own default', async () => {
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

  it('cannot be told: the file is gone, or none of kubelet’s', async () => {
    paper.unit({ commandLine: ['kubelet', '--config=/etc/kubelet.yaml'] });
    expect(await findKubelet(paper.node)).toMatchObject({
      kind: 'unclear',
      why: expect.stringContaining('ENOENT') as string,
    });
    for (const [text, why] of [
      ['kind: Pod\n', '/etc/kubelet.yaml is no KubeletConfiguration'],
      [config('containerRuntimeEndpoint: 7\n'), '/etc/kubelet.yaml: containerRuntimeEndpoint is no text'],
    ] as const) {
      paper.put('proc/42/root/etc/kubelet.yaml', text);
      expect(await findKubelet(paper.node)).toEqual({ kind: 'unclear', why });
    }
  });
});

it('kubelet does not run, or has no unit of this name', async () => {
  paper.unit({ state: 'failed' });
  expect(await findKubelet(paper.node)).toEqual({ kind: 'stopped', state: 'failed' });
  paper.unit(undefined);
  expect(await findKubelet(paper.node)).toEqual({ kind: 'no unit' });
});

it('systemd that cannot be asked is said', async () => {
  paper.systemctl('echo "Failed to connect to bus" >&2; exit 1');
  await expect(findKubelet(paper.node)).rejects.toThrow('systemctl: Failed to connect to bus');
});

it('of a flag the last one counts', () => {
  expect(flagOf(['kubelet', '--a=1', '--a', '2', '--ab=3'], '--a')).toBe('2');
  expect(flagOf(['kubelet', '--a=x=y'], '--a')).toBe('x=y');
  expect(flagOf(['kubelet', '--a'], '--a')).toBeUndefined();
});

it('a file that is no YAML is an error', () => {
  expect(() => endpointIn('kind: [', 'f')).toThrow();
  expect(() => endpointIn('', 'f')).toThrow('f is no KubeletConfiguration');
});
