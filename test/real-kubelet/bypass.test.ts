import { rmSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { execa } from 'execa';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { isSystemdNode } from '../support/cri/pod-cgroup.ts';
import { CONTAINERD, property, removePackage, SETTINGS, UNIT } from '../support/e2e/kubelet-unit.ts';
import { faults } from '../support/e2e/shim-faults.ts';
import { Cluster, until } from './cluster.ts';
import { readiness, runsPod } from './readiness.ts';

/**
 * A real kubelet whose shim fails: its node stays Ready, and pods start during the fault. kubelet reports a runtime
 * that does not answer for 30 s, so each fault lasts longer than 30 s.
 */

const SERVICE = 'cri-resize-shim.service';
const BYPASS = 'cri-resize-shim-bypass.service';
const FAULT_MS = 45_000;

let cluster: Cluster;

beforeAll(async () => {
  expect(isSystemdNode, 'this file is for a node with systemd').toBe(true);
  await removePackage();
  cluster = await Cluster.start('/run/kubernetes');
  await cluster.startKubeletUnit(CONTAINERD);
  const { all, exitCode } = await execa('node', ['dist/resizectl.js', 'install'], { reject: false, all: true });
  expect(exitCode, all).toBe(0);
  await until(() => cluster.isNodeReady(), 'the node to be ready through the shim');
}, 600_000);

afterAll(async () => {
  await execa('node', ['dist/resizectl.js', 'uninstall'], { reject: false });
  await cluster.stop();
  for (const path of [UNIT, dirname(SETTINGS)]) rmSync(path, { recursive: true, force: true });
});

const isActive = async (unit: string): Promise<boolean> => (await property(unit, 'ActiveState')) === 'active';

test.each(faults.map((fault, index) => ({ ...fault, index })))(
  'upgrade: with a real kubelet, the node stays Ready and a pod starts through $title',
  async ({ begin, end, index }) => {
    const before = await readiness(cluster);
    const kubelet = await property('kubelet.service', 'MainPID');
    expect(before.status).toBe('True');
    begin();
    try {
      await execa('systemctl', ['restart', '--no-block', SERVICE]);
      await until(() => isActive(BYPASS), 'the bypass', 30);
      await runsPod(cluster, `web-${index}`);
      await delay(FAULT_MS);
      expect([await readiness(cluster), await isActive(BYPASS)]).toEqual([before, true]);
    } finally {
      end();
    }
    await execa('systemctl', ['kill', '--signal=SIGKILL', SERVICE], { reject: false });
    await execa('systemctl', ['start', SERVICE]);
    await until(async () => !(await isActive(BYPASS)), 'kubelet to use the shim again');
    const { stdout } = await execa('node', ['dist/resizectl.js', 'doctor'], { reject: false });
    expect(stdout).toMatch(/^shim +ok +serves .*, ready$/m);
    expect(stdout).toMatch(/^kubelet +ok +uses the shim/m);
    expect(await readiness(cluster)).toEqual(before);
    expect(await property('kubelet.service', 'MainPID')).toBe(kubelet);
  },
  300_000,
);
