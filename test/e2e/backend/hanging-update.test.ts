import { copyFileSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient } from '../../support/cri/client.ts';
import { type RunningPod, runPod } from '../../support/cri/pod.ts';
import { Served } from '../../support/e2e/served.ts';

/** An update that hangs in the runtime, as if runc never returns. It blocks the whole node's container lists. */

/** Less than the 10 s after which the shim cancels its own call, and more than its wait for a list. */
const ANSWER_MS = 8000;
const FOLDER = '/run/hanging-update-runtime';
const HELD = join(FOLDER, 'held');
const GATE = join(FOLDER, 'gate');
const direct = new CriClient('unix:///run/containerd/containerd.sock');
const pods: RunningPod[] = [];
let served: Served;
let unmount: () => Promise<unknown> = () => Promise.resolve();

const start = async (): Promise<void> => {
  served = await Served.start({ name: 'hanging-update' });
};

/** Replaces the OCI runtime. An update of a container that the file lists waits for a write to the gate. */
const RUNTIME = `#!/bin/sh
case " $* " in *" update "*) if grep -q "\${*##* }" ${HELD} 2>/dev/null; then cat ${GATE} >/dev/null; fi ;; esac
exec ${FOLDER}/runtime "$@"
`;

beforeAll(async () => {
  const { info } = await direct.call<{ info: { config: string } }>('Status', { verbose: true });
  const [, path = ''] = /"BinaryName":"([^"]+)"/.exec(info.config) ?? [];
  mkdirSync(FOLDER, { recursive: true });
  copyFileSync(path, join(FOLDER, 'runtime'));
  writeFileSync(join(FOLDER, 'slow'), RUNTIME, { mode: 0o755 });
  await execa('mount', ['--bind', join(FOLDER, 'slow'), path]);
  unmount = () => execa('umount', [path]);
  await start();
});
afterAll(async () => {
  for (const pod of pods) await pod.remove();
  await served.stop();
  direct.close();
  await unmount();
});

async function make(name: string): Promise<RunningPod> {
  const resources = { memory_limit_in_bytes: 64 * MiB, cpu_quota: 10_000, cpu_period: 100_000, cpu_shares: 102 };
  const pod = await runPod(direct, {
    name,
    containers: [{ name: 'app', command: ['sleep', '1000000'], resources }],
  });
  pods.push(pod);
  return pod;
}

/** Starts an update of a pod's container that does not return. Returns a function that ends the update. */
async function hang(pod: RunningPod): Promise<() => Promise<void>> {
  rmSync(GATE, { force: true });
  await execa('mkfifo', [GATE]);
  writeFileSync(HELD, pod.id('app'));
  const hanging = direct.updateContainer(pod.id('app'), { memory_limit_in_bytes: 80 * MiB });
  await expect.poll(isListBlocked, { timeout: 20_000 }).toBe(true);
  return async () => {
    rmSync(HELD);
    writeFileSync(GATE, '');
    await hanging;
  };
}

/** Whether containerd does not list containers (DEADLINE_EXCEEDED): the update has begun. */
const isListBlocked = (): Promise<boolean> =>
  direct.call('ListContainers', {}, 500).then(
    () => false,
    (error: unknown) => (error as { readonly code: number }).code === 4,
  );

const files = (pod: RunningPod): string[] => [
  pod.read('memory.max', 'app'),
  pod.read('memory.max'),
  pod.read('cpu.max', 'app'),
];

test('an update of one pod that hangs in the runtime blocks no resize of another pod', async () => {
  const [hangs, free] = [await make('hangs'), await make('free')];
  const release = await hang(hangs);
  try {
    const { cri, api } = served;
    const linux = { memory_limit_in_bytes: 96 * MiB };
    await cri.call('UpdateContainerResources', { container_id: free.id('app'), linux }, ANSWER_MS);
    expect(files(free)).toEqual([String(96 * MiB), String(96 * MiB), '10000 100000']);
    const resources = { memory_limit_in_bytes: 128 * MiB };
    await cri.call('UpdatePodSandboxResources', { pod_sandbox_id: free.sandboxId, resources }, ANSWER_MS);
    expect(free.read('memory.max')).toBe(String(128 * MiB));
    const request = { pod: { sandbox_id: free.sandboxId }, containers: { app: { limits: { cpu: '200m' } } } };
    await api.call('ResizePod', request, Date.now() + ANSWER_MS);
    expect(free.read('cpu.max', 'app')).toBe('20000 100000');
  } finally {
    await release();
  }
});

test('a shim that starts while an update hangs resizes the other pods', async () => {
  const [hangs, free] = pods;
  if (hangs === undefined || free === undefined) throw new Error('the pods are missing');
  await served.stop();
  const release = await hang(hangs);
  try {
    await start();
    const request = {
      pod: { name: { namespace: 'default', name: 'free' } },
      containers: { app: { limits: { memory: '72Mi' } } },
    };
    await served.api.call('ResizePod', request, Date.now() + ANSWER_MS);
    expect(free.read('memory.max', 'app')).toBe(String(72 * MiB));
  } finally {
    await release();
  }
});
