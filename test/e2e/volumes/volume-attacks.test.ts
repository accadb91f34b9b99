import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { CriClient } from '../../support/cri/client.ts';
import { KUBELET_ROOT, type RunningPod } from '../../support/cri/pod.ts';
import { CACHE, limit, SLEEP, sizeOf, VolumeStage } from '../../support/e2e/stages.ts';
import { type ResizeClient, refusal } from '../../support/resize-api/client.ts';

/** Names, links and mounts that would direct a remount to something other than a volume of the pod. */

let stage: VolumeStage;
let cri: CriClient;
let api: ResizeClient;
const secrets: string[] = [];

beforeAll(async () => {
  stage = await VolumeStage.start('volume-attacks-test', 128);
  ({ cri, api } = stage.served);
});
afterEach(async () => {
  for (const secret of secrets.splice(0)) await execa('umount', [secret]);
  await stage.removePods();
});
afterAll(() => stage.served.stop());

/** Mounts a secret of the pod, which is also a tmpfs. */
async function mountSecret(running: RunningPod): Promise<string> {
  const secret = join(KUBELET_ROOT, 'pods', running.uid, 'volumes/kubernetes.io~secret/cache');
  await execa('mkdir', ['-p', secret]);
  await execa('mount', ['-t', 'tmpfs', '-o', 'size=4m', 'tmpfs', secret]);
  secrets.push(secret);
  writeFileSync(join(secret, 'token'), 'secret');
  return secret;
}
const megabytesAt = async (folder: string): Promise<number> => {
  const { stdout } = await execa('stat', ['-f', '-c', '%b %S', folder]);
  const [blocks, size] = stdout.split(' ').map(Number);
  return (blocks! * size!) / MiB;
};

test('KEP-6030: a resize never reaches a secret while the volumes’ folder is repeatedly exchanged for a link to the secret', async () => {
  const running = await stage.pod();
  const secret = await mountSecret(running);
  const real = join(KUBELET_ROOT, 'pods', running.uid, 'volumes/kubernetes.io~empty-dir');
  const stop = '/tmp/volume-rules-stop';
  const racer = execa('sh', ['-c', RACER, real, join(secret, '..'), stop]);
  const seen = new Map<string, number>();
  const count = (outcome: string): number => seen.get(outcome) ?? 0;
  try {
    // Runs at least this many rounds, and until both the volume and the link have been met.
    for (let round = 0; round < 16 || ((count('done') === 0 || count('refused') === 0) && round < 1000); round += 1) {
      const to = 96 + (round % 2) * 32;
      const more = { containers: { a: { limits: { memory: `${to}Mi` } } } };
      const outcome = await stage.resize(running, { cache: `${16 + (round % 8)}Mi` }, more).then(
        () => 'done',
        (error: unknown) => {
          expect(String(error)).toMatch(/volume/);
          return 'refused';
        },
      );
      seen.set(outcome, count(outcome) + 1);
      const limits = [running.read('memory.max'), running.read('memory.max', 'a')];
      // All limits have changed, or none.
      expect(limits[0]).toBe(limits[1]);
      if (outcome === 'done') expect(limits[0]).toBe(String(to * MiB));
      expect(await megabytesAt(secret)).toBe(4);
    }
  } finally {
    writeFileSync(stop, '');
    await racer;
    await execa('rm', [stop]);
  }
  expect([count('done') > 0, count('refused') > 0], JSON.stringify([...seen])).toEqual([true, true]);
  await stage.resize(running, { cache: '40Mi' });
  expect([sizeOf(running), await megabytesAt(secret)]).toEqual([40, 4]);
  expect(readFileSync(join(secret, 'token'), 'utf8')).toBe('secret');
});

test('KEP-6030: only emptyDir volumes are resized: a resize is rejected while a secret is mounted over the volume', async () => {
  const running = await stage.pod({ annotations: { [CACHE]: '50%' } });
  const secret = await mountSecret(running);
  await execa('mount', ['--bind', secret, running.volumePath('cache')]);
  try {
    const refused = await refusal(stage.resize(running, { cache: '96Mi' }));
    expect(refused).toMatchObject({ code: 3, reason: 'UNKNOWN_VOLUME' });
    // kubelet's update does not remount it either.
    await cri.updateContainer(running.id('a'), limit(160));
    expect(await megabytesAt(secret)).toBe(4);
  } finally {
    await execa('umount', [running.volumePath('cache')]);
  }
  expect(sizeOf(running)).toBe(64);
  await stage.resize(running, { cache: '96Mi' });
  expect(sizeOf(running)).toBe(96);
});

test("KEP-6030: a resize rejects volume names that are paths, and names of other pods' volumes", async () => {
  const running = await stage.pod();
  const other = await stage.pod({
    name: 'other',
    volumes: [{ name: 'foreign', size: 32 * MiB }],
    containers: [{ name: 'a', command: SLEEP, resources: limit(32) }],
  });
  const secret = await mountSecret(running);
  for (const name of ['..', '../cache', 'cache/..', '../kubernetes.io~secret/cache', `../../../${other.uid}/foreign`]) {
    expect(await refusal(stage.resize(running, { [name]: '8Mi' })), name).toMatchObject({ reason: 'INVALID_VALUE' });
  }
  expect(await refusal(stage.resize(running, { foreign: '8Mi' }))).toMatchObject({ reason: 'UNKNOWN_VOLUME' });
  expect([sizeOf(running), sizeOf(other, 'foreign'), await megabytesAt(secret)]).toEqual([64, 32, 4]);
});

test('KEP-6030: a pod has no volumes if its UID is invalid or is a path to another pod', async () => {
  const running = await stage.pod();
  for (const uid of ['..', `x/../${running.uid}`]) {
    const config = structuredClone(running.config) as { metadata: { uid: string; name: string } };
    Object.assign(config.metadata, { uid, name: 'outsider' });
    const { pod_sandbox_id } = await cri.call<{ pod_sandbox_id: string }>('RunPodSandbox', { config });
    try {
      const asked = api.call('ResizePod', { pod: { sandbox_id: pod_sandbox_id }, volumes: { cache: '8Mi' } });
      expect(await refusal(asked)).toMatchObject({ reason: 'UNKNOWN_VOLUME' });
      expect(sizeOf(running)).toBe(64);
    } finally {
      await cri.call('StopPodSandbox', { pod_sandbox_id });
      await cri.call('RemovePodSandbox', { pod_sandbox_id });
    }
  }
});

/** Exchanges the folder $0 for a link to $1 and back, until the file $2 exists. */
const RACER = `
ln -s "$1" "$0-link"
while [ ! -e "$2" ]; do
  mv -T "$0" "$0-real"; mv -T "$0-link" "$0"; mv -T "$0" "$0-link"; mv -T "$0-real" "$0"
  sleep 0.01
done
rm "$0-link"`;
