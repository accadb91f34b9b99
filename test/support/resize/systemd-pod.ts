import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { microseconds } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { encode } from '../../../src/runtime/codec.ts';
import type { Step } from '../../../src/sandbox/plan/step.ts';
import { containerId, FakeRuntime, podConfig, SANDBOX } from '../fake-runtime.ts';

export const POD_SLICE = '/kubepods.slice/kubepods-pod1.slice';
export const CONTAINER_SCOPE = `${POD_SLICE}/cri-containerd-${containerId(0)}.scope`;

export const cpuMax = (quota: number) => ({ quota: microseconds(quota), period: microseconds(100_000) });

/** A step to a quota that systemd rounds up to 35000: it stores quotas in whole percents of a processor. */
export const roundedStep: Extract<Step, { kind: 'container' }> = {
  kind: 'container',
  id: containerId(0),
  cpu: { from: cpuMax(10_000), to: cpuMax(34_560) },
};

/** Starts a runtime with a pod of one container, whose cgroups are systemd units. */
export async function startSystemdPod(): Promise<FakeRuntime> {
  const runtime = await FakeRuntime.start();
  runtime.makePod(String(100 * MiB), [100 * MiB]);
  runtime.describePod({ config: { ...podConfig, linux: { ...podConfig.linux, cgroup_parent: POD_SLICE } } });
  for (const cgroup of [POD_SLICE, CONTAINER_SCOPE])
    runtime.writeCgroup(cgroup, { 'memory.max': String(100 * MiB), 'cpu.max': '10000 100000', 'cpu.weight': '39' });
  mkdirSync(join(runtime.procRoot, '100'), { recursive: true });
  writeFileSync(join(runtime.procRoot, '100/cgroup'), `0::${CONTAINER_SCOPE}\n`);
  runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
  return runtime;
}

/** The quota in a cgroup's cpu.max. */
export const quotaIn = (runtime: FakeRuntime, cgroup: string): string =>
  readFileSync(join(runtime.cgroupRoot, cgroup, 'cpu.max'), 'utf8')
    .trim()
    .replace(' 100000', '');

export const setQuota = (runtime: FakeRuntime, cgroup: string, value: number): void =>
  runtime.writeFile(cgroup, 'cpu.max', `${value} 100000`);
