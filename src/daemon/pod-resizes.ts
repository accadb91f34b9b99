import type { Counters, Log } from '../observe/index.ts';
import type { Backend } from '../runtime/index.ts';
import {
  type DescribePod,
  type NewestValues,
  type PodDirectory,
  type PodRank,
  type ResizeHistory,
  type ResizePod,
  type ResizeStore,
  Resizes,
  podDirectory,
} from '../resize/index.ts';
import { type PodIdentity, type PodSpecs, type Registry, qosOfCgroup } from '../sandbox/index.ts';
import { systemClock } from '../core/concurrency/index.ts';

export interface PodResizesParts {
  readonly registry: Registry;
  readonly backend: Backend;
  readonly resizePod: ResizePod;
  readonly describePod: DescribePod;
  readonly store: ResizeStore;
  /** The specs of the pods, for the order of retries. */
  readonly specs: PodSpecs;
  /** The order of all requests, those of the CRI included. */
  readonly newest: NewestValues;
  /** All resizes, those of the CRI included. */
  readonly history: ResizeHistory;
  readonly log: Log;
  readonly counters: Counters;
}

/** Resizes of pods for the resize API and for annotations. */
export interface PodResizes {
  readonly resizes: Resizes;
  readonly pods: PodDirectory;
  /** Continues the resizes of an earlier process. Called once, after the registry is synchronized with the backend. */
  restore(): Promise<void>;
  /** Continues the resizes of pods whose records could be read only after {@link restore}. */
  restoreLate(podUids: ReadonlySet<string>): Promise<void>;
  /** Starts no further resizes, and waits for running ones, at most `graceMs`. The journal keeps the rest. */
  close(graceMs: number): Promise<void>;
}

const SANDBOX_READY = 0;

/** Returns the rank of a pod: its priority and its QoS class, by the spec; without that the class of its cgroup. */
export function podRank({ registry, specs }: Pick<PodResizesParts, 'registry' | 'specs'>, pod: PodIdentity): PodRank {
  const spec = specs.of(pod);
  const known = registry.knownPod(pod.sandboxId);
  const qosClass = spec?.qosClass ?? (known && qosOfCgroup(known));
  return { priority: spec?.priority ?? 0, isGuaranteed: qosClass === 'Guaranteed' };
}

export function createPodResizes(parts: PodResizesParts): PodResizes {
  const { registry, backend, resizePod, describePod, store, newest, history, log, counters } = parts;
  const rankOf = (pod: PodIdentity): PodRank => podRank(parts, pod);
  const random = Math.random;
  const order = { newest, history, rankOf };
  const resizes = new Resizes({ resizePod, store, ...order, clock: systemClock, random, log, counters });
  registry.watch({
    podAdded: () => undefined,
    podRemoved: ({ sandboxId }) => resizes.podRemoved(sandboxId),
    containerRemoved: () => undefined,
  });
  const isReady = async (sandboxId: string): Promise<boolean> => {
    const { status } = await backend.runtime('PodSandboxStatus', { pod_sandbox_id: sandboxId });
    return status?.state === SANDBOX_READY;
  };
  const exists = async (sandboxId: string): Promise<boolean> => (await registry.pod(sandboxId)) !== undefined;
  let isRestored = false;
  return {
    resizes,
    pods: podDirectory({ registry, isReady, describePod }),
    restore() {
      isRestored = true;
      return resizes.restore(exists);
    },
    async restoreLate(podUids) {
      // Otherwise the first restore includes them.
      if (!isRestored) return;
      const records = (await store.restore()).filter(({ podUid }) => podUids.has(podUid));
      await resizes.restore(exists, { restore: () => Promise.resolve(records) });
    },
    async close(graceMs) {
      const ended = resizes.close();
      const timeout = new Promise<void>((resolve) => setTimeout(resolve, graceMs).unref());
      await Promise.race([ended, timeout]);
    },
  };
}
