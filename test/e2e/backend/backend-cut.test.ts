import { execFileSync } from 'node:child_process';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CrashingShim } from '../../crash/crashing-shim.ts';
import { type RunningPod, runPod } from '../../support/cri/pod.ts';
import { refusal } from '../../support/resize-api/client.ts';
import { PodWatcher } from '../../watch/watcher.ts';

/** Kills containerd in the middle of a resize. The shim is halted there first. */

const SLEEP = ['sleep', '1000000'];
/** At this point the first container has its new limits and the second one does not. */
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

const limits = (mebibytes: number, quota: number) => ({
  memory_limit_in_bytes: mebibytes * MiB,
  cpu_quota: quota,
  cpu_period: 100_000,
});

async function pod(): Promise<RunningPod> {
  const running = await runPod(shim.cri, {
    name: 'web',
    containers: [
      { name: 'a', command: SLEEP, resources: limits(64, 10_000), mounts: { cache: '/cache' } },
      { name: 'b', command: SLEEP, resources: limits(128, 20_000) },
    ],
    volumes: [{ name: 'cache', size: 64 * MiB }],
  });
  pods.push(running);
  return running;
}

const limitsOf = (running: RunningPod): string[] =>
  [undefined, 'a', 'b'].flatMap((name) => ['memory.max', 'cpu.max'].map((file) => running.read(file, name)));
const processesOf = (running: RunningPod): string[] => ['a', 'b'].map((name) => running.read('cgroup.procs', name));

const to = (memory: string, cpu: string) => ({ limits: { memory, cpu } });

test.each([
  ['up', { a: to('128Mi', '200m'), b: to('192Mi', '300m') }, '96Mi'],
  ['down', { a: to('32Mi', '50m'), b: to('96Mi', '100m') }, '32Mi'],
])(
  'KEP-1287: a resize %s is applied fully or rolled back when containerd returns, and no sum exceeds the pod limit',
  async (_, containers, cache) => {
    const running = await pod();
    const before = [limitsOf(running), processesOf(running), running.volume('cache').size];
    const watcher = await PodWatcher.watch(running);
    const answer = refusal(
      shim.api.call('ResizePod', { pod: { sandbox_id: running.sandboxId }, containers, volumes: { cache } }),
    );
    await shim.halt(HALF_WAY, () => execFileSync('node-containerd', ['kill']));
    // Without containerd, the applied steps cannot be rolled back.
    expect(await answer).toMatchObject({ reason: 'UNDO_FAILED' });
    expect(limitsOf(running)).not.toEqual(before[0]);
    execFileSync('node-containerd', ['start']);
    await shim.logged(({ msg, pod: id }) => msg === 'unfinished resize recovered' && id === running.sandboxId);
    expect([limitsOf(running), processesOf(running), running.volume('cache').size]).toEqual(before);
    expect(shim.records().filter(({ transaction }) => transaction !== undefined)).toEqual([]);
    const { violations, readings } = await watcher.report();
    expect(violations).toEqual([]);
    expect(readings).toBeGreaterThan(10);
    expect(running.oomKills()).toBe(0);
    expect(
      await shim.api.call('ResizePod', { pod: { sandbox_id: running.sandboxId }, containers, volumes: { cache } }),
    ).toMatchObject({ resize: { state: 'COMPLETED' } });
  },
);
