import { expect } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient } from '../cri/client.ts';
import type { RunningPod } from '../cri/pod.ts';
import { runPod } from '../cri/pod.ts';
import { ShimProcess } from '../cri/shim.ts';
import { ResizeClient } from '../resize-api/client.ts';

export interface ServedOptions {
  /** The name of the folder under /run for the sockets. */
  readonly name: string;
  /** The CRI socket of the shim. Default: its usual socket. */
  readonly listen?: string;
  readonly args?: readonly string[];
}

/** A shim that serves both interfaces, with a client of each. */
export class Served {
  private constructor(
    readonly shim: ShimProcess,
    readonly cri: CriClient,
    readonly api: ResizeClient,
  ) {}

  static async start({ name, listen, args = [] }: ServedOptions): Promise<Served> {
    const resize = `/run/${name}/resize.sock`;
    const shim = await ShimProcess.start({
      ...(listen !== undefined && { listen }),
      args: ['--resize-listen', resize, ...args],
    });
    return new Served(shim, new CriClient(shim.address), new ResizeClient(resize));
  }

  /** Throws unless the shim exits with code 0. */
  async stop(): Promise<void> {
    this.cri.close();
    this.api.close();
    const code = await this.shim.stop();
    if (code !== 0) throw new Error(`the shim exited with ${code}`);
  }
}

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
