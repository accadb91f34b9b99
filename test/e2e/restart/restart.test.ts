import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient } from '../../support/cri/client.ts';
import { KUBELET_ROOT, type PodSpec, type RunningPod, runPod } from '../../support/cri/pod.ts';
import type { ShimProcess } from '../../support/cri/shim.ts';
import { Served } from '../../support/e2e/served.ts';
import type { ResizeClient } from '../../support/resize-api/client.ts';

/** State that survives a restart of the shim, and of the machine. */

const LISTEN = 'unix:///run/restart-test/cri.sock';

let state: string;
let served: Served;
let shim: ShimProcess;
let cri: CriClient;
let api: ResizeClient;
const direct = new CriClient('unix:///run/containerd/containerd.sock');

async function start(): Promise<void> {
  served = await Served.start({ name: 'restart-test', listen: LISTEN, args: ['--state-folder', state] });
  ({ shim, cri, api } = served);
  await shim.waitForLog(({ msg }) => msg === 'registry compared with the backend');
}
const stop = (): Promise<void> => served.stop();

beforeEach(async () => {
  state = mkdtempSync(join(tmpdir(), 'restart-'));
  await start();
});
afterEach(async () => {
  await stop();
  rmSync(state, { recursive: true });
});
afterAll(() => direct.close());

const spec: PodSpec = {
  name: 'web',
  containers: [
    {
      name: 'a',
      command: ['sleep', '1000000'],
      resources: { memory_limit_in_bytes: 128 * MiB },
      mounts: { cache: '/cache' },
    },
  ],
  // kubelet's size for the volume is the pod's limit.
  volumes: [{ name: 'cache', size: 128 * MiB }],
};
const recordOf = (running: RunningPod): string => join(state, `${running.uid}.json`);
const toSize = (running: RunningPod, cache: string) =>
  api.call('ResizePod', { pod: { uid: running.uid }, volumes: { cache } });

test('KEP-6030: the allocated size of a volume survives a restart, and a reboot in which the volume is mounted again', async () => {
  const running = await runPod(cri, spec);
  await toSize(running, '48Mi');
  expect(running.volume('cache').size).toBe(48 * MiB);
  await stop();
  await start();
  // A following volume would be as large as it was mounted.
  await cri.updateContainer(running.id('a'), { memory_limit_in_bytes: 160 * MiB });
  expect(running.volume('cache').size).toBe(48 * MiB);
  expect(await api.call('GetPod', { pod: { uid: running.uid } })).toMatchObject({
    pod: { values: { volumes: [{ name: 'cache', policy: '48Mi' }] } },
  });
  await stop();

  // A reboot: the sandbox is gone, and kubelet mounts the volume by its own rule and creates another sandbox of the
  // same pod.
  await direct.call('StopPodSandbox', { pod_sandbox_id: running.sandboxId });
  await direct.call('RemovePodSandbox', { pod_sandbox_id: running.sandboxId });
  await execa('umount', [running.volumePath('cache')]);
  const record = JSON.parse(readFileSync(recordOf(running), 'utf8')) as object;
  writeFileSync(recordOf(running), JSON.stringify({ ...record, bootId: 'another' }));
  await start();
  const again = await runPod(cri, { ...spec, uid: running.uid });
  expect(again.volume('cache').size).toBe(48 * MiB);
  await again.remove();
});

test('a requested size that a volume already has is stored, and written only once', async () => {
  const running = await runPod(cri, spec);
  expect(await toSize(running, '128Mi')).not.toMatchObject({ resize: { steps: [{}] } });
  const record = JSON.parse(readFileSync(recordOf(running), 'utf8')) as { volumes: object; transaction?: object };
  const policy = { kind: 'absolute', size: 128 * MiB };
  expect(record.volumes).toMatchObject({ cache: { policy, source: 'asked', mount: { size: 128 * MiB } } });
  expect(record.transaction).toBeUndefined();
  const { ino } = statSync(recordOf(running));
  await toSize(running, '128Mi');
  // A write replaces the file.
  expect(statSync(recordOf(running)).ino).toBe(ino);
  await running.remove();
});

test("the record of a pod that was deleted without the shim is removed at the next start, once the pod's folder is gone", async () => {
  const running = await runPod(cri, spec);
  await toSize(running, '48Mi');
  await stop();
  await direct.call('StopPodSandbox', { pod_sandbox_id: running.sandboxId });
  await direct.call('RemovePodSandbox', { pod_sandbox_id: running.sandboxId });
  await start();
  await shim.waitForLog(({ msg }) => msg === 'recovery finished');
  expect(existsSync(recordOf(running))).toBe(true);
  await stop();
  await execa('umount', [running.volumePath('cache')]);
  rmSync(join(KUBELET_ROOT, 'pods', running.uid), { recursive: true });
  await start();
  await expect.poll(() => existsSync(recordOf(running))).toBe(false);
});

test('a pod that was created without the shim is found by uid and by name', async () => {
  const running = await runPod(direct, { ...spec, name: 'past' });
  for (const pod of [{ uid: running.uid }, { name: { namespace: 'default', name: 'past' } }]) {
    const found = await api.call('GetPod', { pod });
    expect(found).toMatchObject({ pod: { identity: { sandbox_id: running.sandboxId } } });
  }
  await running.remove();
});
