import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient } from '../../support/cri/client.ts';
import { type RunningPod, runPod } from '../../support/cri/pod.ts';
import { ShimProcess } from '../../support/cri/shim.ts';
import { ResizeClient, refusal } from '../../support/resize-api/client.ts';

/** A shim in its own mount namespace, as in a container. Volumes that are mounted later do not appear in it. */

const RESIZE = '/run/own-mounts-test/resize.sock';

let shim: ShimProcess;
let cri: CriClient;
let api: ResizeClient;
let state: string;
const pods: RunningPod[] = [];

async function start(...args: string[]): Promise<void> {
  state = mkdtempSync(join(tmpdir(), 'own-mounts-'));
  shim = await ShimProcess.start({
    listen: 'unix:///run/own-mounts-test/cri.sock',
    args: ['--resize-listen', RESIZE, '--state-folder', state, ...args],
    passedOn: { env: {}, descriptors: [], before: ['unshare', '--mount', '--propagation', 'private'] },
  });
  cri = new CriClient(shim.address);
  api = new ResizeClient(RESIZE);
}

afterEach(async () => {
  for (const pod of pods.splice(0)) await pod.remove();
  cri.close();
  api.close();
  expect(await shim.stop()).toBe(0);
  rmSync(state, { recursive: true });
});

async function pod(): Promise<RunningPod> {
  const running = await runPod(cri, {
    name: 'web',
    containers: [
      {
        name: 'a',
        command: ['sleep', '1000000'],
        resources: { memory_limit_in_bytes: 128 * MiB },
        mounts: { cache: '/cache' },
      },
    ],
    volumes: [{ name: 'cache', size: 128 * MiB }],
    annotations: { 'volume.cri-resize-shim.io/cache': 'follow' },
  });
  pods.push(running);
  return running;
}

const resize = (running: RunningPod, cache: string) =>
  api.call('ResizePod', { pod: { sandbox_id: running.sandboxId }, volumes: { cache } });

test("KEP-6030: volumes are found and resized through a process in the node's mount namespace", async () => {
  await start('--mounts-of-pid', String(process.pid));
  const running = await pod();
  const file = join(running.volumePath('cache'), 'file');
  writeFileSync(file, 'content');
  await cri.updateContainer(running.id('a'), { memory_limit_in_bytes: 192 * MiB });
  expect(running.volume('cache').size).toBe(192 * MiB);
  expect(await resize(running, '64Mi')).toMatchObject({ resize: { state: 'COMPLETED' } });
  expect(running.volume('cache').size).toBe(64 * MiB);
  expect(await cri.exec(running.id('a'), 'df', '-m', '/cache')).toMatch(/\s64\s/);
  expect(readFileSync(file, 'utf8')).toBe('content');
  writeFileSync(join(running.volumePath('cache'), 'more'), Buffer.alloc(48 * MiB));
  expect(await refusal(resize(running, '32Mi'))).toMatchObject({ reason: 'VOLUME_IN_USE' });
});

test('volumes are not found without --mounts-of-pid', async () => {
  await start();
  const running = await pod();
  expect(await refusal(resize(running, '64Mi'))).toMatchObject({ reason: 'UNKNOWN_VOLUME' });
  expect(running.volume('cache').size).toBe(128 * MiB);
});
