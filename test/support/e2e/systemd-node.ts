import { expect } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient } from '../cri/client.ts';
import { type RunningPod, runPod } from '../cri/pod.ts';
import { isSystemdNode } from '../cri/pod-cgroup.ts';
import { CONTAINERD, removePackage } from './kubelet-unit.ts';

/** A node with systemd and without the shim, and a pod on it that runs during all tests of a file. */
export interface SystemdNode {
  /** A client of containerd. */
  readonly direct: CriClient;
  readonly pod: RunningPod;
}

/** Removes the package, and creates the pod with these containers. */
export async function startSystemdNode(containers: readonly string[]): Promise<SystemdNode> {
  expect(isSystemdNode, 'this file is for a node with systemd').toBe(true);
  await removePackage();
  const direct = new CriClient(CONTAINERD);
  const resources = {
    memory_limit_in_bytes: 64 * MiB,
    cpu_quota: 10_000,
    cpu_period: 100_000,
    cpu_shares: 102,
  };
  const command = ['sleep', '1000000'];
  const pod = await runPod(direct, {
    name: 'web',
    containers: containers.map((name) => ({ name, command, resources })),
  });
  return { direct, pod };
}
