import { MiB } from '../../src/core/quantities/sizes.ts';
import type { CriClient } from '../support/cri/client.ts';
import type { PodSpec, RunningPod } from '../support/cri/pod.ts';
import type { Answer } from '../support/resize-api/client.ts';
import type { CrashingShim } from './crashing-shim.ts';

/** A pod's values by name, as the kernel has them: `a memory.max`, `volume cache`. */
export type Values = Readonly<{ [name: string]: string }>;

/** The parts of a running scenario. */
export interface Stage {
  readonly shim: CrashingShim;
  /** A client of containerd itself, without the shim. */
  readonly direct: CriClient;
  readonly pod: RunningPod;
  /** Called after each answer if there are several calls: a recovery may restore the values of this moment. */
  answered(): void;
}

/** A resize of a pod that is interrupted at each of its crash points. */
export interface Scenario {
  readonly name: string;
  readonly pod: Partial<PodSpec>;
  /** Called once for each pod. If it returns a pod, that one is checked instead. */
  readonly setUp?: (stage: Stage) => Promise<RunningPod | undefined>;
  readonly tearDown?: (pod: RunningPod) => Promise<void>;
  /** Called before each run. */
  readonly prepare?: (stage: Stage) => Promise<unknown>;
  /** The calls of the caller. */
  readonly act: (stage: Stage) => Promise<unknown>;
  /** Removes obstacles after each run. After a kill, called when the shim has recovered. */
  readonly after?: (stage: Stage) => void;
  /** The calls that must lead to the target after a restart of the shim, because kubelet repeats its calls. */
  readonly repeat?: (stage: Stage) => Promise<unknown>;
  /** Waits after a restart of the shim, before the pod is checked. */
  readonly meanwhile?: (stage: Stage) => Promise<void>;
  /** The error of the rejected calls. If absent, the calls succeed. */
  readonly rejected?: RegExp;
  /** The expected values of the pod after the resize, where they differ from the start. */
  readonly target: Values;
  /** The expected sizes of volumes in the journal after the resize, in bytes. */
  readonly allocated?: Readonly<{ [volume: string]: number }>;
  /** Set when nothing is written or called, so that the scenario passes no crash points. */
  readonly pointless?: true;
  /** Set when a pod is used only once, since it cannot be reset to its start. */
  readonly oneUse?: true;
  /** Set when the shim is killed at each point of its recovery, also at those that other scenarios test. */
  readonly everyRecovery?: true;
  /** Restores values that a resize by the shim does not restore. */
  readonly reset?: (stage: Stage) => void | Promise<void>;
}

export const SLEEP = ['sleep', '1000000'];

/** Returns CRI resources. CPU is in thousandths. */
export const resources = (mebibytes: number, limit: number, request: number) => ({
  memory_limit_in_bytes: mebibytes * MiB,
  cpu_quota: limit * 100,
  cpu_period: 100_000,
  cpu_shares: Math.floor((request * 1024) / 1000),
});

/** Two containers in a pod with a tight limit, and a volume of the size of the limit. */
export const twoContainers = {
  containers: [
    { name: 'a', command: SLEEP, resources: resources(64, 100, 100), mounts: { cache: '/cache' } },
    { name: 'b', command: SLEEP, resources: resources(128, 200, 200) },
  ],
  volumes: [{ name: 'cache', size: 192 * MiB }],
  annotations: { 'volume.cri-resize-shim.io/cache': 'follow' },
} as const satisfies Partial<PodSpec>;

export const withoutVolume = {
  containers: twoContainers.containers.map(({ name, command, resources }) => ({ name, command, resources })),
};

/** Calls ResizePod. */
export const resizePod = ({ shim, pod }: Stage, request: object): Promise<Answer> =>
  shim.api.call('ResizePod', { pod: { sandbox_id: pod.sandboxId }, ...request });

export const updateContainer = ({ shim, pod }: Stage, name: string, linux: object): Promise<object> =>
  shim.cri.updateContainer(pod.id(name), linux);
