import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient } from '../../support/cri/client.ts';
import { type ContainerSpec, createContainer, type PodSpec, type RunningPod, runPod } from '../../support/cri/pod.ts';
import { Served } from '../../support/e2e/served.ts';
import { type Answer, refusal } from '../../support/resize-api/client.ts';

/**
 * A pod whose containers or whose sandbox have ended, as after a crash of its first process: kubelet creates another
 * sandbox and its containers, in the same cgroup, and removes the ended one up to a minute later.
 */

let state: string;
/** A folder in memory that outlasts sandboxes. What a container writes there stays charged to its pod. */
let lasting: string;
let served: Served;
const direct = new CriClient('unix:///run/containerd/containerd.sock');
const pods: RunningPod[] = [];

async function start(): Promise<void> {
  const args = ['--state-folder', state, '--foresight=false'];
  served = await Served.start({ name: 'replaced-sandbox', args });
}

beforeEach(async () => {
  state = mkdtempSync(join(tmpdir(), 'replaced-sandbox-'));
  lasting = join(state, 'lasting');
  mkdirSync(lasting);
  await start();
});
afterEach(async () => {
  await served.stop();
  // The last removal also removes the cgroup that the sandboxes share.
  const last = pods.pop();
  for (const { sandboxId } of pods.splice(0)) await direct.call('RemovePodSandbox', { pod_sandbox_id: sandboxId });
  await last?.remove();
  rmSync(state, { recursive: true });
});
afterAll(() => direct.close());

const memory = (mebibytes: number) => ({ memory_limit_in_bytes: mebibytes * MiB });

const app = (attempt: number): ContainerSpec => ({
  name: 'app',
  command: ['sleep', '1000000'],
  resources: memory(128),
  attempt,
  binds: { [lasting]: '/lasting' },
});

/** kubelet has not created the container yet. */
const withoutContainers = { containers: [], podCpu: 'max 100000' };

/** Creates and starts the container in the second sandbox of a pod. */
async function startApp(second: RunningPod): Promise<RunningPod> {
  const id = await createContainer(served.cri, second, app(1));
  await served.cri.call('StartContainer', { container_id: id });
  return Object.assign(second, { containers: new Map([['app', id]]) });
}

/** A sandbox of a pod with one container, made through the shim or without it. */
async function sandbox(
  client: CriClient,
  attempt: number,
  uid?: string,
  more: Partial<PodSpec> = {},
): Promise<RunningPod> {
  const ofPod = uid === undefined ? {} : { uid };
  const running = await runPod(client, { name: 'web', attempt, ...ofPod, containers: [app(attempt)], ...more });
  // The pod is removed without the shim, which may be another one by then.
  pods.push(Object.assign(running, { client: direct }));
  return running;
}

/** Asks for less than is in use, until {@link free}. Returns the id of the deferred resize. */
async function deferred(running: RunningPod): Promise<unknown> {
  await direct.exec(running.id('app'), 'dd', 'if=/dev/zero', 'of=/lasting/held', 'bs=1M', 'count=60');
  const { resize } = await lower(running, { defer: true });
  expect(resize).toMatchObject({ state: 'DEFERRED', reason: 'MEMORY_NOT_RECLAIMABLE' });
  return resize?.['id'];
}
const free = (): void => rmSync(join(lasting, 'held'));
const lower = ({ sandboxId }: RunningPod, more: object = {}): Promise<Answer> =>
  served.api.call('ResizePod', {
    pod: { sandbox_id: sandboxId },
    containers: { app: { limits: { memory: '48Mi' } } },
    ...more,
  });
const end = ({ sandboxId }: RunningPod): Promise<object> =>
  direct.call('StopPodSandbox', { pod_sandbox_id: sandboxId });
const waits = (reason: string): Promise<object> =>
  served.shim.waitForLog((line) => line.msg === 'deferred resize retried' && line['reason'] === reason);
const retriedAs = (id: unknown, state: string): Promise<object> =>
  served.shim.waitForLog(
    (line) => line.msg === 'deferred resize retried' && line['resize'] === id && line['state'] === state,
  );
const limits = (running: RunningPod): number[] =>
  [running.read('memory.max'), running.read('memory.max', 'app')].map((text) => Number(text) / MiB);
const stateOf = async (id: unknown): Promise<unknown> => (await served.api.call('GetResize', { id })).resize?.['state'];

describe('a deferred resize of a pod whose sandbox has ended', () => {
  test('KEP-1287: a deferred resize waits for the next sandbox of its pod, and is applied to its containers', async () => {
    const first = await sandbox(served.cri, 0);
    const id = await deferred(first);
    await end(first);
    await waits('SANDBOX_ENDED');
    expect(await stateOf(id)).toBe('DEFERRED');
    // Frees the memory before the next start, which triggers the retry: the memory is charged to the pod now.
    free();
    const second = await sandbox(served.cri, 1, first.uid);
    await served.cri.call('RemovePodSandbox', { pod_sandbox_id: first.sandboxId });
    await retriedAs(id, 'Completed');
    expect(limits(second)).toEqual([48, 48]);
  });

  test('KEP-1287: a deferred resize is applied to a sandbox that was created while the shim did not run', async () => {
    const first = await sandbox(served.cri, 0);
    const id = await deferred(first);
    await served.stop();
    await end(first);
    const second = await sandbox(direct, 1, first.uid);
    await start();
    free();
    await retriedAs(id, 'Completed');
    expect(limits(second)).toEqual([48, 48]);
  });
});

test('KEP-1287: a deferred resize survives a restart of the shim after the ended sandbox was removed', async () => {
  const first = await sandbox(served.cri, 0);
  const id = await deferred(first);
  await end(first);
  free();
  const second = await sandbox(served.cri, 1, first.uid, { podMemory: 128 * MiB, ...withoutContainers });
  await served.cri.call('RemovePodSandbox', { pod_sandbox_id: first.sandboxId });
  await served.stop();
  await start();
  await retriedAs(id, 'Deferred');
  const running = await startApp(second);
  await retriedAs(id, 'Completed');
  expect(limits(running)).toEqual([48, 48]);
});

describe('a container of the next sandbox with limits from before a ResizePod', () => {
  /** The pod limit that ResizePod set. kubelet does not write it again. */
  const lowered = { podMemory: 48 * MiB };

  /** Creates a pod that ResizePod lowers and whose sandbox then ends. */
  async function ended(): Promise<RunningPod> {
    const first = await sandbox(served.cri, 0);
    await lower(first);
    expect(limits(first)).toEqual([48, 48]);
    await end(first);
    return first;
  }

  test('KEP-1287: a container that starts in the next sandbox with larger limits raises the pod limit', async () => {
    const { uid } = await ended();
    expect(limits(await sandbox(served.cri, 1, uid, lowered))).toEqual([128, 128]);
  });

  test('KEP-1287: a container with larger limits raises the pod limit of a sandbox that was created without the shim', async () => {
    const { uid } = await ended();
    await served.stop();
    const second = await sandbox(direct, 1, uid, { ...lowered, ...withoutContainers });
    await start();
    expect(limits(await startApp(second))).toEqual([128, 128]);
  });
});

describe('a deferred resize of a pod whose containers have all ended', () => {
  test('a deferred resize of a pod without running containers waits for the next container of its sandbox', async () => {
    const running = await sandbox(served.cri, 0);
    const id = await deferred(running);
    await direct.call('StopContainer', { container_id: running.id('app') });
    free();
    await waits('NO_RUNNING_CONTAINER');
    expect(await stateOf(id)).toBe('DEFERRED');
    const next = { name: 'app', attempt: 1, command: ['sleep', '1000000'], resources: memory(128) };
    const nextId = await createContainer(served.cri, running, next);
    await served.cri.call('StartContainer', { container_id: nextId });
    await retriedAs(id, 'Completed');
    const replaced = Object.assign(running, { containers: new Map([['app', nextId]]) });
    await expect.poll(() => limits(replaced)).toEqual([48, 48]);
  });

  test('a deferred resize of a pod without running containers waits for the next sandbox if its own one ends', async () => {
    const first = await sandbox(served.cri, 0);
    const id = await deferred(first);
    await direct.call('StopContainer', { container_id: first.id('app') });
    free();
    await waits('NO_RUNNING_CONTAINER');
    await end(first);
    const second = await sandbox(served.cri, 1, first.uid);
    await retriedAs(id, 'Completed');
    expect(limits(second)).toEqual([48, 48]);
  });
});

test('KEP-1287: a resize of a sandbox that has ended is rejected', async () => {
  const first = await sandbox(served.cri, 0);
  await end(first);
  expect(await refusal(lower(first))).toMatchObject({ code: 9, reason: 'SANDBOX_ENDED' });
});
