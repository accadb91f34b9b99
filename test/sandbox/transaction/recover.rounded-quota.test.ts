import { afterEach, beforeEach, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { recover } from '../../../src/sandbox/transaction/recover.ts';
import type { Step } from '../../../src/sandbox/plan/step.ts';
import { type FakeRuntime, SANDBOX, containerId } from '../../support/fake-runtime.ts';
import {
  CONTAINER_SCOPE,
  POD_SLICE,
  cpuMax,
  quotaIn,
  roundedStep,
  setQuota,
  startSystemdPod,
} from '../../support/resize/systemd-pod.ts';

// systemd stores quotas in whole percents of a processor, and writes them again when a property of a unit is set.

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await startSystemdPod();
});
afterEach(() => runtime.close());

const podStep: Step = { kind: 'pod-cpu', from: cpuMax(10_000), to: cpuMax(34_560) };
const memoryStep: Step = { kind: 'pod-memory', from: bytes(100 * MiB), to: bytes(200 * MiB) };

async function interrupt(steps: readonly Step[]): Promise<void> {
  const pod = (await runtime.node.registry.pod(SANDBOX))!;
  await runtime.node.journal.begin(pod, steps, { volumes: runtime.node.policies.records(SANDBOX) });
}

test('recovery finishes a fully applied resize whose quotas systemd has rounded since', async () => {
  await interrupt([podStep, roundedStep]);
  setQuota(runtime, POD_SLICE, 35_000);
  setQuota(runtime, CONTAINER_SCOPE, 35_000);
  await recover(runtime.node);
  expect(runtime.warnings.at(-1)).toMatchObject({ outcome: 'finished' });
  expect([quotaIn(runtime, POD_SLICE), quotaIn(runtime, CONTAINER_SCOPE)]).toEqual(['35000', '35000']);
});

test('recovery rolls back a partly applied resize whose quotas systemd has rounded since', async () => {
  const updates: bigint[] = [];
  runtime.on('UpdateContainerResources', (request) => {
    const { cpu_quota = 0n } = runtime.decodeUpdate(request).linux ?? {};
    updates.push(cpu_quota);
    setQuota(runtime, CONTAINER_SCOPE, Number(cpu_quota));
    return Buffer.alloc(0);
  });
  await interrupt([podStep, roundedStep, memoryStep]);
  setQuota(runtime, POD_SLICE, 35_000);
  setQuota(runtime, CONTAINER_SCOPE, 35_000);
  await recover(runtime.node);
  expect(runtime.warnings.at(-1)).toMatchObject({ outcome: 'undone' });
  expect([quotaIn(runtime, POD_SLICE), quotaIn(runtime, CONTAINER_SCOPE)]).toEqual(['10000', '10000']);
  expect(updates).toEqual([10_000n]);
});

test('recovery keeps a pod quota that is neither the old nor the new one, even after rounding', async () => {
  await interrupt([podStep, memoryStep]);
  setQuota(runtime, POD_SLICE, 36_000);
  await recover(runtime.node);
  expect(quotaIn(runtime, POD_SLICE)).toBe('36000');
});

test('recovery keeps a container quota that is neither old nor new, although the runtime has stored the new one', async () => {
  runtime.describeContainer(
    containerId(0),
    {
      metadata: { name: 'c0' },
      state: 1,
      resources: { linux: { cpu_quota: 34_560n, cpu_period: 100_000n } },
    },
    100,
  );
  await interrupt([roundedStep, memoryStep]);
  setQuota(runtime, CONTAINER_SCOPE, 36_000);
  await recover(runtime.node);
  expect(quotaIn(runtime, CONTAINER_SCOPE)).toBe('36000');
  expect(runtime.calls).not.toContain('UpdateContainerResources');
  expect(runtime.warnings.at(-1)).toMatchObject({ outcome: 'undone' });
});

test('recovery distinguishes the new quota from an old quota that rounds to it', async () => {
  const steps: Step[] = [{ ...roundedStep, cpu: { from: cpuMax(34_560), to: cpuMax(35_000) } }, memoryStep];
  runtime.on('UpdateContainerResources', (request) => {
    setQuota(runtime, CONTAINER_SCOPE, Number(runtime.decodeUpdate(request).linux?.cpu_quota));
    return Buffer.alloc(0);
  });
  await interrupt(steps);
  setQuota(runtime, CONTAINER_SCOPE, 35_000);
  await recover(runtime.node);
  expect(quotaIn(runtime, CONTAINER_SCOPE)).toBe('34560');
});
