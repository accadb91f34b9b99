import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { encode } from '../../../src/runtime/index.ts';
import { updateAndVerify } from '../../../src/resize/execute/container-step.ts';
import { bytes, microseconds } from '../../../src/core/quantities/index.ts';
import { FakeRuntime, SANDBOX, containerId, podConfig } from '../../support/fake-runtime.ts';
import type { Step } from '../../../src/resize/model/step.ts';
import { recover } from '../../../src/resize/execute/recover.ts';

// systemd keeps quotas in whole percents of a processor, and writes them anew when anybody sets a property of a unit.
const POD = '/kubepods.slice/kubepods-pod1.slice';
const SCOPE = `${POD}/cri-containerd-${containerId(0)}.scope`;
const MiB = 1024 * 1024;
const cpu = (quota: number) => ({ quota: microseconds(quota), period: microseconds(100_000) });

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(String(100 * MiB), [100 * MiB]);
  runtime.describePod({ config: { ...podConfig, linux: { ...podConfig.linux, cgroup_parent: POD } } });
  for (const cgroup of [POD, SCOPE])
    runtime.writeCgroup(cgroup, { 'memory.max': String(100 * MiB), 'cpu.max': '10000 100000', 'cpu.weight': '39' });
  mkdirSync(join(runtime.procRoot, '100'), { recursive: true });
  writeFileSync(join(runtime.procRoot, '100/cgroup'), `0::${SCOPE}\n`);
  runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
});
afterEach(() => runtime.close());

const quota = (cgroup: string): string =>
  readFileSync(join(runtime.cgroupRoot, cgroup, 'cpu.max'), 'utf8')
    .trim()
    .replace(' 100000', '');
const has = (cgroup: string, value: number): void => runtime.writeFile(cgroup, 'cpu.max', `${value} 100000`);

const podStep: Step = { kind: 'pod-cpu', from: cpu(10_000), to: cpu(34_560) };
const containerStep: Extract<Step, { kind: 'container' }> = {
  kind: 'container',
  id: containerId(0),
  cpu: { from: cpu(10_000), to: cpu(34_560) },
};
const memoryStep: Step = { kind: 'pod-memory', from: bytes(100 * MiB), to: bytes(200 * MiB) };

async function cutOff(steps: readonly Step[]): Promise<void> {
  const pod = (await runtime.context.registry.pod(SANDBOX))!;
  await runtime.context.journal.begin(pod, steps, { volumes: runtime.context.policies.records(SANDBOX) });
}

test('a resize that was cut off after its last step is finished, whatever was rounded since', async () => {
  await cutOff([podStep, containerStep]);
  has(POD, 35_000);
  has(SCOPE, 35_000);
  await recover(runtime.context);
  expect(runtime.warnings.at(-1)).toMatchObject({ outcome: 'finished' });
  expect([quota(POD), quota(SCOPE)]).toEqual(['35000', '35000']);
});

test('one that was cut off before is undone, whatever was rounded since', async () => {
  const updates: bigint[] = [];
  runtime.on('UpdateContainerResources', (request) => {
    const { cpu_quota = 0n } = runtime.decodeUpdate(request).linux ?? {};
    updates.push(cpu_quota);
    has(SCOPE, Number(cpu_quota));
    return Buffer.alloc(0);
  });
  await cutOff([podStep, containerStep, memoryStep]);
  has(POD, 35_000);
  has(SCOPE, 35_000);
  await recover(runtime.context);
  expect(runtime.warnings.at(-1)).toMatchObject({ outcome: 'undone' });
  expect([quota(POD), quota(SCOPE)]).toEqual(['10000', '10000']);
  expect(updates).toEqual([10_000n]);
});

test('a value that is none of the two, nor rounded, is left to whoever wrote it', async () => {
  await cutOff([podStep, memoryStep]);
  has(POD, 36_000);
  await recover(runtime.context);
  expect(quota(POD)).toBe('36000');
});

test('an old value that would be rounded to the new one is not taken for it', async () => {
  const steps: Step[] = [{ ...containerStep, cpu: { from: cpu(34_560), to: cpu(35_000) } }, memoryStep];
  runtime.on('UpdateContainerResources', (request) => {
    has(SCOPE, Number(runtime.decodeUpdate(request).linux?.cpu_quota));
    return Buffer.alloc(0);
  });
  await cutOff(steps);
  has(SCOPE, 35_000);
  await recover(runtime.context);
  expect(quota(SCOPE)).toBe('34560');
});

test('what the runtime has set is right though systemd has rounded it, and wrong when it is something else', async () => {
  const pod = (await runtime.context.registry.pod(SANDBOX))!;
  const sets = (value: number): void =>
    runtime.on('UpdateContainerResources', () => {
      has(SCOPE, value);
      return Buffer.alloc(0);
    });
  sets(35_000);
  await updateAndVerify(runtime.context, pod, containerStep);
  sets(36_000);
  const error = { reason: 'CGROUP_WRITE_FAILED', context: { asked: '34560', found: '36000' } };
  await expect(updateAndVerify(runtime.context, pod, containerStep)).rejects.toMatchObject(error);
});
