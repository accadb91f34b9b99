import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  endpointFlagsOf,
  findKubeletProcess,
  flagOf,
  K3S_DROP_INS,
  kubeletOfUnit,
  NotStartedYet,
  stillRuns,
} from '../../../src/kubelet/endpoint/process.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

describe('process of kubelet', () => {
  let fake: FakeInstallNode;

  beforeEach(() => (fake = new FakeInstallNode()));

  afterEach(() => fake.remove());
  const proc = (): string => fake.node.procRoot;
  const command = (pid: number, ...words: readonly string[]): void =>
    fake.put(`proc/${pid}/cmdline`, words.map((word) => `${word}\0`).join(''));

  test('finds kubelet among all processes by its name, but not in another PID namespace', async () => {
    fake.process(7, 'kubelet');
    fake.put('proc/7/status', 'Name:\tkubelet\nNSpid:\t7\t1\n');
    command(7, 'kubelet', '--config=/in-a-container');
    fake.process(9, 'kubelet (fake)');
    command(42, 'kubelet', '--config=/k');
    expect(await findKubeletProcess(proc())).toMatchObject({ pid: 42, startTime: '1000', flags: { config: '/k' } });
  });

  test('finds no kubelet among other processes, and skips a process that has ended', async () => {
    fake.process(42, 'kubeletctl');
    fake.put('proc/meminfo', '');
    fake.put('proc/43/other', '');
    expect(await findKubeletProcess(proc())).toBeUndefined();
  });

  test('reads the start time after a process name with spaces and parentheses', async () => {
    fake.put('proc/42/comm', 'kubelet\n');
    fake.put('proc/42/stat', `42 (a) S (b c) S 1 ${'0 '.repeat(17)}77 0\n`);
    command(42, 'kubelet');
    expect(await findKubeletProcess(proc())).toMatchObject({ startTime: '77' });
  });

  test('another process with a reused pid does not count as the kubelet found before', async () => {
    command(42, 'kubelet');
    const found = (await findKubeletProcess(proc()))!;
    expect(await stillRuns(proc(), found)).toBe(true);
    fake.process(42, 'kubelet', { startTime: 1001 });
    expect(await stillRuns(proc(), found)).toBe(false);
    expect(await stillRuns(proc(), { ...found, pid: 43 })).toBe(false);
  });

  test.each([
    ['k3s-server', ['/usr/local/bin/k3s server']],
    ['k3s-agent', ['/usr/local/bin/k3s', 'agent', '--token=x']],
  ])('%s uses the drop-in folder of k3s', async (name, words) => {
    fake.process(42, name);
    command(42, ...words);
    expect(await findKubeletProcess(proc())).toMatchObject({ flags: { configDir: K3S_DROP_INS } });
    expect(await kubeletOfUnit(proc(), 42)).toMatchObject({ flags: { configDir: K3S_DROP_INS } });
  });

  test('the kubelet of a unit is its main process unless that has a child called kubelet', async () => {
    fake.process(42, 'node');
    command(42, 'node', 'hyperkube', '--config=/main');
    expect(await kubeletOfUnit(proc(), 42)).toMatchObject({ pid: 42, flags: { config: '/main' } });
    fake.process(50, 'kubelet', { parent: 42 });
    command(50, 'kubelet', '--config=/child');
    expect(await kubeletOfUnit(proc(), 42)).toMatchObject({ pid: 50, flags: { config: '/child' } });
  });

  test('kubelite of MicroK8s is a kubelet with its flags in a file, which has variables of the snap', async () => {
    fake.process(42, 'kubelite');
    command(42, '/snap/microk8s/1/kubelite', '--kubelet-args-file=/var/snap/microk8s/1/args/kubelet');
    await expect(kubeletOfUnit(proc(), 42)).rejects.toThrow('/var/snap/microk8s/1/args/kubelet does not exist');
    const text = `# --config=/no
--eviction-hard="memory.available<100Mi"
--config \${SNAP_DATA}/kubelet.yaml
  --container-runtime-endpoint='$SNAP_COMMON/run/containerd.sock'
--containerd=\${OTHER}/containerd.sock
`;
    fake.put('proc/42/root/var/snap/microk8s/1/args/kubelet', text);
    const flags = {
      endpoint: '/var/snap/microk8s/common/run/containerd.sock',
      config: '/var/snap/microk8s/1/kubelet.yaml',
      configDir: undefined,
      argsFile: '/var/snap/microk8s/1/args/kubelet',
    };
    expect(await findKubeletProcess(proc())).toMatchObject({ pid: 42, flags });
    expect(await kubeletOfUnit(proc(), 42)).toMatchObject({ flags });
  });

  test.each(['rke2', 'bash'])(
    'the main process %s of a unit is not taken for a kubelet with its defaults before it has started one',
    async (name) => {
      fake.process(42, name);
      command(42, name, '/snap/microk8s/1/run-kubelite-with-args');
      await expect(kubeletOfUnit(proc(), 42)).rejects.toThrow(NotStartedYet);
    },
  );

  test.each(['(kubelet)', 'systemd-executo', 'systemd'])(
    'a unit process that still has the command line of systemd is a kubelet that has not started yet: %s',
    async (name) => {
      fake.process(42, name);
      command(42, '/usr/lib/systemd/systemd-executor', '--deserialize', '32');
      await expect(kubeletOfUnit(proc(), 42)).rejects.toThrow(NotStartedYet);
    },
  );

  test('a process without a command line is not a running kubelet: it has not started yet or has ended', async () => {
    command(42);
    await expect(kubeletOfUnit(proc(), 42)).rejects.toThrow(NotStartedYet);
    expect(await findKubeletProcess(proc())).toBeUndefined();
  });
});

test('the last occurrence of a flag counts, as --flag=value and as --flag value', () => {
  expect(flagOf(['kubelet', '--a=1', '--a', '2', '--ab=3'], '--a')).toBe('2');
  expect(flagOf(['kubelet', '--a', '2', '--a=1'], '--a')).toBe('1');
  expect(flagOf(['kubelet', '--a=x=y'], '--a')).toBe('x=y');
  expect(flagOf(['kubelet', '--a=x\ny'], '--a')).toBe('x\ny');
});

test('ignores a flag without a value, after --, or with one dash', () => {
  expect(flagOf(['kubelet', '--a'], '--a')).toBeUndefined();
  expect(flagOf(['kubelet', '--', '--a=1'], '--a')).toBeUndefined();
  expect(flagOf(['kubelet', '-a=1'], '--a')).toBeUndefined();
  expect(flagOf([], '--a')).toBeUndefined();
});

test('underscores in the name of a flag count as dashes, but those in its value do not', () => {
  expect(flagOf(['kubelet', '--config_dir=/a_b'], '--config-dir')).toBe('/a_b');
  expect(flagOf(['kubelet', '--config_dir', '/a_b'], '--config-dir')).toBe('/a_b');
});

test('a flag with an empty value counts as not set', () => {
  expect(endpointFlagsOf(['kubelet', '--container-runtime-endpoint=', '--config', '', '--config-dir=/d'])).toEqual({
    endpoint: undefined,
    config: undefined,
    configDir: '/d',
  });
});
