import { readFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CrashingShim } from '../../crash/crashing-shim.ts';
import { CriClient } from '../../support/cri/client.ts';
import { type RunningPod, runPod } from '../../support/cri/pod.ts';
import { type Answer, refusal } from '../../support/resize-api/client.ts';

/** The requests that ResizePod has set, after the shim was killed. The pods are not kubelet's. */

const shim = new CrashingShim();
const direct = new CriClient('unix:///run/containerd/containerd.sock');
const pods: RunningPod[] = [];
const [, total = ''] = /^MemTotal: +(\d+) kB$/m.exec(readFileSync('/proc/meminfo', 'utf8')) ?? [];
/** All but 400Mi of the memory of the node. */
const most = `${Math.floor(Number(total) / 1024) - 400}Mi`;

beforeAll(async () => {
  expect(await shim.start()).toBe(true);
});
afterEach(async () => {
  for (const pod of pods.splice(0)) await pod.remove();
});
afterAll(async () => {
  direct.close();
  await shim.stop();
});

const pod = async (name: string): Promise<RunningPod> => {
  const resources = { memory_limit_in_bytes: 64 * MiB, cpu_quota: 10_000, cpu_period: 100_000, cpu_shares: 51 };
  const running = await runPod(direct, {
    name,
    containers: [{ name: 'app', command: ['sleep', '1000000'], resources }],
  });
  pods.push(running);
  return running;
};
const resize = ({ sandboxId }: RunningPod, memory: string): Promise<Answer> =>
  shim.api.call('ResizePod', {
    pod: { sandbox_id: sandboxId },
    containers: { app: { limits: { memory }, requests: { memory } } },
  });

test('KEP-1287: requests that ResizePod has set count after the shim was killed', async () => {
  const [a, b] = [await pod('a'), await pod('b')];
  await resize(a, most);
  expect((await refusal(resize(b, '800Mi'))).reason).toBe('NODE_FULL');
  process.kill(shim.pid, 'SIGKILL');
  await shim.killed();
  expect(await shim.start()).toBe(true);
  expect((await refusal(resize(b, '800Mi'))).reason).toBe('NODE_FULL');
  expect(b.read('memory.max', 'app')).toBe(String(64 * MiB));
  await resize(a, '64Mi');
  await resize(b, '800Mi');
  expect(b.read('memory.max', 'app')).toBe(String(800 * MiB));
});

test.each([
  ['before its first step', 'cgroup-write-before memory.max#1', false],
  ['between its steps', 'cgroup-write-after memory.max#1', false],
  ['after its last step', 'backend-call-after UpdateContainerResources#1', true],
] as const)(
  'KEP-1287: requests of a resize that is killed %s count if it is finished, not if it is rolled back',
  async (_, point, isFinished) => {
    const [a, b] = [await pod('a'), await pod('b')];
    shim.arm(point);
    await expect(resize(a, most)).rejects.toThrow();
    await shim.killed();
    shim.disarm();
    expect(await shim.start()).toBe(true);
    expect(a.read('memory.max', 'app') !== String(64 * MiB)).toBe(isFinished);
    if (isFinished) expect((await refusal(resize(b, '800Mi'))).reason).toBe('NODE_FULL');
    else await resize(b, '800Mi');
    expect(b.read('memory.max', 'app')).toBe(String((isFinished ? 64 : 800) * MiB));
  },
);
