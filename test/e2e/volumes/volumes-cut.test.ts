import { execFileSync } from 'node:child_process';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CrashingShim } from '../../crash/crashing-shim.ts';
import { type RunningPod, runPod } from '../../support/cri/pod.ts';
import { type Answer, refusal } from '../../support/resize-api/client.ts';

/** Removes a volume or a pod in the middle of a resize. The shim is halted there. */

/** At this point the container's limit is lowered. Lowering the pod's limit and growing the volume are pending. */
const HALF_WAY = 'backend-call-after UpdateContainerResources';

const shim = new CrashingShim();
const pods: RunningPod[] = [];

beforeAll(async () => {
  expect(await shim.start()).toBe(true);
});
afterEach(async () => {
  for (const pod of pods.splice(0)) await pod.remove();
});
afterAll(() => shim.stop());

async function pod(): Promise<RunningPod> {
  const running = await runPod(shim.cri, {
    name: 'web',
    containers: [
      {
        name: 'a',
        command: ['sleep', '1000000'],
        resources: { memory_limit_in_bytes: 256 * MiB },
        mounts: { cache: '/cache' },
      },
    ],
    volumes: [{ name: 'cache', size: 64 * MiB }],
  });
  pods.push(running);
  return running;
}

const resize = (running: RunningPod, cache: string, memory?: string): Promise<Answer> =>
  shim.api.call('ResizePod', {
    pod: { sandbox_id: running.sandboxId },
    containers: memory === undefined ? {} : { a: { limits: { memory } } },
    volumes: { cache },
  });

const limitsOf = (running: RunningPod): string[] => [running.read('memory.max'), running.read('memory.max', 'a')];

test('KEP-6030: a resize fails and is rolled back if its volume is unmounted while it runs', async () => {
  const running = await pod();
  const answer = refusal(resize(running, '96Mi', '64Mi'));
  await shim.halt(HALF_WAY, () => {
    expect(limitsOf(running)).toEqual([String(256 * MiB), String(64 * MiB)]);
    execFileSync('umount', ['-l', running.volumePath('cache')]);
  });
  expect(await answer).toMatchObject({ reason: 'UNKNOWN_VOLUME' });
  expect(limitsOf(running)).toEqual([String(256 * MiB), String(256 * MiB)]);
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${64 * MiB}`, 'tmpfs', running.volumePath('cache')]);
  expect(await resize(running, '32Mi')).toMatchObject({ resize: { state: 'COMPLETED' } });
});

test('KEP-1287: a resize ends if its pod is removed while it runs, and the shim no longer has the pod', async () => {
  const running = await pod();
  const ended = resize(running, '96Mi', '64Mi').then(
    () => 'done',
    () => 'failed',
  );
  const removed: Promise<void>[] = [];
  await shim.halt(HALF_WAY, () => {
    pods.splice(pods.indexOf(running), 1);
    removed.push(running.remove());
  });
  await Promise.all(removed);
  expect(['done', 'failed']).toContain(await ended);
  expect(await refusal(shim.api.call('GetPod', { pod: { uid: running.uid } }))).toMatchObject({
    reason: 'UNKNOWN_POD',
  });
  // The shim continues to work.
  expect(await resize(await pod(), '32Mi')).toMatchObject({ resize: { state: 'COMPLETED' } });
});
