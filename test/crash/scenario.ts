import type { CriClient } from '../support/cri/client.ts';
import type { PodSpec, RunningPod } from '../support/cri/pod.ts';
import type { Answer } from '../support/resize-api-client.ts';
import type { CrashingShim } from './crashing-shim.ts';

/** A pod's values by name, as the kernel has them: `a memory.max`, `volume cache`. */
export type Values = Readonly<{ [name: string]: string }>;

/** Where a scenario plays. */
export interface Stage {
  readonly shim: CrashingShim;
  /** containerd itself, past the shim. */
  readonly direct: CriClient;
  readonly pod: RunningPod;
  /** A caller that makes several calls says so after each: what the pod has then is a state that it may be found in. */
  answered(): void;
}

/** One way to resize a pod, to be cut off anywhere. */
export interface Scenario {
  readonly name: string;
  readonly pod: Partial<PodSpec>;
  /** Once for each pod. What it gives is looked at instead of the pod as it was made. */
  readonly setUp?: (stage: Stage) => Promise<RunningPod | undefined>;
  readonly tearDown?: (pod: RunningPod) => Promise<void>;
  /** Before each time. */
  readonly prepare?: (stage: Stage) => Promise<unknown>;
  /** What the caller does. */
  readonly act: (stage: Stage) => Promise<unknown>;
  /** Whatever came of it: what was in its way is taken out of it. With a shim that was killed, once it has recovered. */
  readonly after?: (stage: Stage) => void;
  /** What it does when the shim has been started anew, and what has to get the pod to its target then: kubelet repeats its calls. */
  readonly repeat?: (stage: Stage) => Promise<unknown>;
  /** What is waited for, after the shim has been started anew, before the pod is looked at. */
  readonly meanwhile?: (stage: Stage) => Promise<void>;
  /** What it is answered when nothing goes wrong: what the error has to say. Done without this. */
  readonly refused?: RegExp;
  /** What the pod has afterwards, where that is not what it had. */
  readonly target: Values;
  /** Sizes of volumes that the journal keeps afterwards, in bytes. */
  readonly allocated?: Readonly<{ [volume: string]: number }>;
  /** Nothing is written or called: there is nowhere to be killed. */
  readonly pointless?: true;
  /** A pod is used once, since it cannot be brought back to where it was. */
  readonly oneUse?: true;
  /** The shim is killed at each point of its recovery, also at those that were tried in other scenarios. */
  readonly everyRecovery?: true;
  /** Brings back what a resize by the shim does not. */
  readonly reset?: (stage: Stage) => void | Promise<void>;
}

export const MiB = 1024 * 1024;
export const SLEEP = ['sleep', '1000000'];

/** CPU in thousandths. */
export const resources = (mebibytes: number, limit: number, request: number) => ({
  memory_limit_in_bytes: mebibytes * MiB,
  cpu_quota: limit * 100,
  cpu_period: 100_000,
  cpu_shares: Math.floor((request * 1024) / 1000),
});

/** Two containers in a pod that has just enough for them, and a volume as large as that. */
export const twoContainers = {
  containers: [
    { name: 'a', command: SLEEP, resources: resources(64, 100, 100), mounts: { cache: '/cache' } },
    { name: 'b', command: SLEEP, resources: resources(128, 200, 200) },
  ],
  volumes: [{ name: 'cache', size: 192 * MiB }],
} as const satisfies Partial<PodSpec>;

export const withoutVolume = {
  containers: twoContainers.containers.map(({ name, command, resources }) => ({ name, command, resources })),
};

export const mebibytes = (count: number): string => String(count * MiB);

/** Asks for a whole pod's resize. */
export const resizePod = ({ shim, pod }: Stage, request: object): Promise<Answer> =>
  shim.api.call('ResizePod', { pod: { sandbox_id: pod.sandboxId }, ...request });

export const updateContainer = ({ shim, pod }: Stage, name: string, linux: object): Promise<object> =>
  shim.cri.updateContainer(pod.id(name), linux);
