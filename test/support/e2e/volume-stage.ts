import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { Resources } from '../cri/client.ts';
import { type PodSpec, type RunningPod, runPod } from '../cri/pod.ts';
import type { Answer } from '../resize-api/client.ts';
import { Served } from './served.ts';

export const SLEEP = ['sleep', '1000000'];
export const CACHE = 'volume.cri-resize-shim.io/cache';

export const limit = (mebibytes: number): Resources => ({ memory_limit_in_bytes: mebibytes * MiB });
/** In MiB. */
export const sizeOf = (running: RunningPod, name = 'cache'): number => running.volume(name).size / MiB;

/** A shim, and pods with a memory-backed volume. */
export class VolumeStage {
  readonly #pods: RunningPod[] = [];

  private constructor(
    readonly served: Served,
    readonly memory: number,
  ) {}

  /** @param memory limit of a pod's container, in MiB */
  static async start(name: string, memory: number): Promise<VolumeStage> {
    return new VolumeStage(await Served.start({ name }), memory);
  }

  /** Creates a pod with one container, `a`, and a volume of 64 MiB, `cache`. */
  async pod(spec: Partial<PodSpec> = {}): Promise<RunningPod> {
    const running = await runPod(this.served.cri, {
      name: 'web',
      containers: [{ name: 'a', command: SLEEP, resources: limit(this.memory), mounts: { cache: '/cache' } }],
      volumes: [{ name: 'cache', size: 64 * MiB }],
      ...spec,
    });
    this.#pods.push(running);
    return running;
  }

  resize(running: RunningPod, volumes: Readonly<Record<string, string>>, more: object = {}): Promise<Answer> {
    return this.served.api.call('ResizePod', { pod: { sandbox_id: running.sandboxId }, volumes, ...more });
  }

  async removePods(): Promise<void> {
    for (const pod of this.#pods.splice(0)) await pod.remove();
  }
}
