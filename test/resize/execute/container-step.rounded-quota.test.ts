import { afterEach, beforeEach, expect, test } from 'vitest';
import { updateAndVerify } from '../../../src/resize/execute/container-step.ts';
import { type FakeRuntime, SANDBOX } from '../../support/fake-runtime.ts';
import { CONTAINER_SCOPE, roundedStep, setQuota, startSystemdPod } from '../../support/resize/systemd-pod.ts';

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await startSystemdPod();
});
afterEach(() => runtime.close());

test('updateAndVerify accepts a quota that systemd has rounded, and rejects any other difference', async () => {
  const pod = (await runtime.context.registry.pod(SANDBOX))!;
  const sets = (value: number): void =>
    runtime.on('UpdateContainerResources', () => {
      setQuota(runtime, CONTAINER_SCOPE, value);
      return Buffer.alloc(0);
    });
  sets(35_000);
  await updateAndVerify(runtime.context, pod, roundedStep);
  sets(36_000);
  const error = { reason: 'CGROUP_WRITE_FAILED', context: { asked: '34560', found: '36000' } };
  await expect(updateAndVerify(runtime.context, pod, roundedStep)).rejects.toMatchObject(error);
});
