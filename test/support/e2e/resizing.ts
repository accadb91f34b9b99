import { expect } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient } from '../cri/client.ts';
import { type RunningPod, runPod } from '../cri/pod.ts';
import { ResizeClient } from '../resize-api/client.ts';

/** Creates a pod with a container of 128 MiB and half a CPU, and a volume `cache` of 64 MiB. */
export const podWithVolume = (direct: CriClient, name: string): Promise<RunningPod> =>
  runPod(direct, {
    name,
    containers: [
      {
        name: 'app',
        command: ['sleep', '1000000'],
        resources: { memory_limit_in_bytes: 128 * MiB, cpu_quota: 50_000, cpu_period: 100_000 },
        mounts: { cache: '/cache' },
      },
    ],
    volumes: [{ name: 'cache', size: 64 * MiB }],
  });

/** Checks that a shim resizes a pod that is created while it runs, through its own API and through CRI. */
export async function resizesThrough(
  direct: CriClient,
  { cri, resize, name }: { readonly cri: string; readonly resize: string; readonly name: string },
): Promise<void> {
  const client = new CriClient(`unix://${cri}`);
  const api = new ResizeClient(resize);
  expect(await client.version()).toMatchObject({ runtime_name: 'containerd' });
  // The volume is mounted after the start of the shim, which must find it nevertheless.
  const running = await podWithVolume(direct, name);
  const containers = { app: { limits: { memory: '96Mi', cpu: '250m' } } };
  await api.call('ResizePod', { pod: { uid: running.uid }, containers, volumes: { cache: '25%' } });
  expect(running.read('memory.max', 'app')).toBe(String(96 * MiB));
  expect(running.read('cpu.max', 'app')).toBe('25000 100000');
  expect(running.volume('cache').size).toBe(24 * MiB);
  await client.updateContainer(running.id('app'), { memory_limit_in_bytes: 160 * MiB });
  expect(running.volume('cache').size).toBe(40 * MiB);
  await running.remove();
  client.close();
  api.close();
}
