import { existsSync, readFileSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { execa } from 'execa';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { isSystemdNode } from '../support/cri/pod-cgroup.ts';
import { DebPackage } from '../support/e2e/deb-package.ts';
import { CONFIG, CONTAINERD, OURS, removePackage, SETTINGS, UNIT } from '../support/e2e/kubelet-unit.ts';
import { Cluster, until } from './cluster.ts';
import { readiness, runsPod } from './readiness.ts';

/** A real kubelet that uses the shim of the .deb while the package is upgraded and removed. */

/** kubelet reports a runtime that does not answer for 30 s. */
const NOTICED_MS = 45_000;

let cluster: Cluster;
let deb: DebPackage;

beforeAll(async () => {
  expect(isSystemdNode, 'this file is for a node with systemd').toBe(true);
  await removePackage();
  deb = await DebPackage.make();
  cluster = await Cluster.start('/run/kubernetes-package');
  await cluster.startKubeletUnit(CONTAINERD);
  await deb.install();
  const { all, exitCode } = await execa('resizectl', ['install'], { reject: false, all: true });
  expect(exitCode, all).toBe(0);
  await until(() => cluster.isNodeReady(), 'the node to be ready through the shim');
}, 600_000);

afterAll(async () => {
  await execa('systemctl', ['stop', 'kubelet.service'], { reject: false });
  await cluster.stop();
  deb.dispose();
  for (const path of [UNIT, dirname(SETTINGS)]) rmSync(path, { recursive: true, force: true });
});

const endpoint = (): string | undefined =>
  /^containerRuntimeEndpoint: "?([^"\s]+)/m.exec(readFileSync(CONFIG, 'utf8'))?.[1];

test('the node stays Ready, and a pod starts, while the .deb is installed again', async () => {
  const before = await readiness(cluster);
  expect([before.status, endpoint()]).toEqual(['True', OURS]);
  await deb.install();
  await runsPod(cluster, 'upgraded');
  await delay(NOTICED_MS);
  expect(await readiness(cluster)).toEqual(before);
}, 300_000);

test('the node stays Ready, and a pod starts, after the .deb was removed', async () => {
  const before = await readiness(cluster);
  const removed = await deb.remove();
  expect(removed.exitCode, removed.all).toBe(0);
  expect([endpoint(), existsSync('/usr/lib/cri-resize-shim')]).toEqual([CONTAINERD, false]);
  await runsPod(cluster, 'removed');
  await delay(NOTICED_MS);
  expect(await readiness(cluster)).toEqual(before);
}, 300_000);
