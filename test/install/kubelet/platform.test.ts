import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { findKubeletUnit, findPrefix, runtimeOfKubelet } from '../../../src/install/kubelet/platform.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

let fake: FakeInstallNode;
beforeEach(() => (fake = new FakeInstallNode()));
afterEach(() => fake.remove());

describe('the unit of kubelet', () => {
  /** Puts units into systemd: `NAME STATE FILE-STATE`. The others do not exist. */
  function units(...known: readonly string[]): void {
    const blocks = known.map((line) => {
      const [name, state, file] = line.split(' ');
      return `${name}) state=${state}; file=${file};;`;
    });
    const print = 'echo Id=$unit; echo ActiveState=$state; echo UnitFileState=$file; echo';
    fake.systemctl(
      `shift 3; for unit; do state=inactive; file=; case $unit in\n${blocks.join('\n')}\nesac; ${print}; done`,
    );
  }

  test.each([
    [['kubelet.service active enabled'], 'kubelet.service'],
    [['kubelet.service inactive disabled', 'k3s.service active enabled'], 'k3s.service'],
    [['kubelet.service inactive enabled', 'k3s-agent.service activating enabled'], 'k3s-agent.service'],
    [['rke2-server.service inactive disabled', 'rke2-agent.service active enabled'], 'rke2-agent.service'],
    [['rke2-server.service failed enabled', 'rke2-agent.service inactive disabled'], 'rke2-server.service'],
    [['k0sworker.service reloading enabled'], 'k0sworker.service'],
    [[], 'kubelet.service'],
  ])('install: with the units %j, it is %s', async (known, unit) => {
    units(...known);
    expect(await findKubeletUnit()).toBe(unit);
  });

  test('it is kubelet.service if systemd does not answer', async () => {
    fake.systemctl('exit 1');
    expect(await findKubeletUnit()).toBe('kubelet.service');
  });
});

describe('the runtime of kubelet', () => {
  const started = (endpoint: string): void =>
    fake.unit({ commandLine: ['kubelet', `--container-runtime-endpoint=${endpoint}`] });

  test('install: it is the socket of its endpoint, in any form', async () => {
    for (const endpoint of ['unix:///run/k3s/containerd/containerd.sock', '/run/k3s/containerd/containerd.sock']) {
      started(endpoint);
      expect(await runtimeOfKubelet(fake.node, fake.at('target'))).toBe('/run/k3s/containerd/containerd.sock');
    }
  });

  test('install: it is the one that the shim has used last if kubelet uses the shim', async () => {
    started(`unix://${fake.node.listen}`);
    fake.put('target', 'CRI_RESIZE_SHIM_BYPASS_TO="/run/k3s/containerd/containerd.sock"\n');
    expect(await runtimeOfKubelet(fake.node, fake.at('target'))).toBe('/run/k3s/containerd/containerd.sock');
  });

  test('it is unknown if kubelet uses a shim that has never started, or a network address, or does not run', async () => {
    for (const endpoint of [`unix://${fake.node.listen}`, 'tcp://127.0.0.1:1']) {
      started(endpoint);
      expect(await runtimeOfKubelet(fake.node, fake.at('target'))).toBeUndefined();
    }
    fake.unit({});
    expect(await runtimeOfKubelet(fake.node, fake.at('target'))).toBeUndefined();
    fake.systemctl('exit 1');
    expect(await runtimeOfKubelet(fake.node, fake.at('target'))).toBeUndefined();
  });
});

test('install: the program goes to the first folder that can be written, unless it is below another one', async () => {
  const [first, second] = [fake.at('missing'), fake.at('opt')];
  mkdirSync(second);
  const isAt = (folder: string) => (prefix: string) => Promise.resolve(prefix === folder);
  expect(await findPrefix(isAt(''), [first, second])).toBe(second);
  mkdirSync(first);
  expect(await findPrefix(isAt(''), [first, second])).toBe(first);
  expect(await findPrefix(isAt(second), [first, second])).toBe(second);
  expect(await findPrefix(isAt(''), [join(first, 'no'), join(second, 'no')])).toBe(join(first, 'no'));
});
