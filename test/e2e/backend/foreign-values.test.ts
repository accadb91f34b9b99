import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CrashingShim } from '../../crash/crashing-shim.ts';
import { CriClient } from '../../support/cri/client.ts';
import { RunningPod, runPod } from '../../support/cri/pod.ts';
import { refusal } from '../../support/resize-api/client.ts';

/** Another program writes to a container's cgroup in an interrupted resize. The runtime stored the new values. */

const SLEEP = ['sleep', '1000000'];
/** At this point the first container has its new limits and the second one does not. */
const HALF_WAY = 'backend-call-after UpdateContainerResources';
const FILES = ['memory.max', 'cpu.max', 'cpu.weight', 'memory.high'];

const shim = new CrashingShim();
const direct = new CriClient('unix:///run/containerd/containerd.sock');
let running: RunningPod;

beforeAll(async () => {
  expect(await shim.start()).toBe(true);
});
afterEach(async () => {
  shim.disarm();
  const { uid, sandboxId, containers, volumes, qos, config } = running;
  // The shim through which the pod was created may have ended.
  await new RunningPod(direct, uid, sandboxId, containers, volumes, qos, config).remove();
});
afterAll(async () => {
  direct.close();
  await shim.stop();
});

const limits = (mebibytes: number) => ({
  memory_limit_in_bytes: mebibytes * MiB,
  cpu_quota: 10_000,
  cpu_period: 100_000,
  cpu_shares: 102,
  unified: { 'memory.high': String((mebibytes - 4) * MiB) },
});
const found = (): Record<string, string> => Object.fromEntries(FILES.map((file) => [file, running.read(file, 'a')]));

/** Raises both containers. The request ends with an error, or with the shim. */
function resize(): Promise<unknown> {
  const raised = { limits: { memory: '128Mi', cpu: '200m' }, requests: { cpu: '200m' } };
  const pod = { sandbox_id: running.sandboxId };
  return refusal(shim.api.call('ResizePod', { pod, containers: { a: raised, b: raised } }));
}

/** Ends a resize half-way, calls `meanwhile`, and waits for the recovery. */
const ends: readonly (readonly [string, (meanwhile: () => void) => Promise<void>])[] = [
  [
    'containerd',
    async (meanwhile) => {
      const answer = resize();
      await shim.halt(HALF_WAY, () => execFileSync('node-containerd', ['kill']));
      expect(await answer).toMatchObject({ reason: 'UNDO_FAILED' });
      meanwhile();
      execFileSync('node-containerd', ['start']);
      await shim.logged(({ msg, pod }) => msg === 'unfinished resize recovered' && pod === running.sandboxId);
    },
  ],
  [
    'the shim',
    async (meanwhile) => {
      shim.arm(`${HALF_WAY}#1`);
      const answer = resize().catch(() => undefined);
      await shim.killed();
      await answer;
      meanwhile();
      expect(await shim.start()).toBe(true);
    },
  ],
];

test.each(
  ends.flatMap(([what, end]) =>
    [{}, { 'memory.max': String(80 * MiB), 'cpu.weight': '500' }, { 'cpu.max': '15000 100000' }].map(
      (written) => [Object.keys(written).join(' and ') || 'nothing', what, written, end] as const,
    ),
  ),
)(
  'the recovery leaves %s of another program after the end of %s, and restores the rest',
  async (_, __, written, end) => {
    running = await runPod(shim.cri, {
      name: 'foreign',
      containers: ['a', 'b'].map((name) => ({ name, command: SLEEP, resources: limits(64) })),
    });
    const before = found();
    await end(() => {
      expect(found()).not.toEqual(before);
      for (const [file, text] of Object.entries(written)) writeFileSync(join(running.containerCgroup('a'), file), text);
    });
    expect(found()).toEqual({ ...before, ...written });
    expect(shim.records().filter(({ transaction }) => transaction !== undefined)).toEqual([]);
  },
);
