import { type Counters, type Log, systemClock } from '../core/index.ts';
import type { EntryRequests, KubeletState } from '../kubelet/index.ts';
import type { MemoryVolumes } from '../tmpfs/index.ts';
import { type Backend, SandboxState } from '../runtime/index.ts';
import {
  type NewestValues,
  type PodDirectory,
  type PodIdentity,
  type PodRank,
  type PodSpecs,
  type ReadPodView,
  type Registry,
  type ResizeHistory,
  type ResizePod,
  type ResizeStore,
  Resizes,
  identityOf,
  newestSandbox,
  podDirectory,
  qosOfCgroup,
} from '../sandbox/index.ts';

export interface PodResizesParts {
  readonly registry: Registry;
  readonly backend: Backend;
  readonly volumes: MemoryVolumes;
  readonly resizePod: ResizePod;
  readonly readPodView: ReadPodView;
  readonly store: ResizeStore;
  /** The specs of the pods, for the order of retries. */
  readonly specs: PodSpecs;
  /** kubelet's checkpoints. */
  readonly kubelet: KubeletState;
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

/** Returns the rank of a pod: its priority and its QoS class, by the spec; without that the class of its cgroup. */
export function podRank({ registry, specs }: Pick<PodResizesParts, 'registry' | 'specs'>, pod: PodIdentity): PodRank {
  const spec = specs.of(pod);
  const known = registry.knownPod(pod.sandboxId);
  const qosClass = spec?.qosClass ?? (known && qosOfCgroup(known));
  return { priority: spec?.priority ?? 0, isGuaranteed: qosClass === 'Guaranteed' };
}

function newestIdentity(registry: Registry, podUid: string): PodIdentity | undefined {
  const newest = newestSandbox(registry, podUid);
  return newest && identityOf(newest);
}

/** Returns the requests that kubelet has admitted for a pod. Undefined: not known. */
function admittedRequests(kubelet: KubeletState, podUid: string): EntryRequests | undefined {
  kubelet.refresh();
  return kubelet.allocated(podUid)?.requests;
}

function followRegistry(registry: Registry, resizes: Resizes): void {
  registry.watch({
    podAdded: ({ metadata }) => resizes.sandboxAdded(metadata.uid),
    podRemoved: ({ sandboxId }) => resizes.podRemoved(sandboxId),
    containerStarted: ({ sandboxId }) => resizes.containerStarted(sandboxId),
  });
}

/** Returns the resizes of all pods, connected to the registry. */
export function createPodResizes(parts: PodResizesParts): PodResizes {
  const { registry, backend, volumes, resizePod, readPodView, store, newest, history, log, counters } = parts;
  const rankOf = (pod: PodIdentity): PodRank => podRank(parts, pod);
  const random = Math.random;
  const kubeletRequests = (podUid: string): EntryRequests | undefined => admittedRequests(parts.kubelet, podUid);
  const order = { newest, history, rankOf, newestSandbox: (uid: string) => newestIdentity(registry, uid) };
  const resizes = new Resizes({
    resizePod,
    store,
    kubeletRequests,
    ...order,
    clock: systemClock,
    random,
    log,
    counters,
  });
  followRegistry(registry, resizes);
  const isReady = async (sandboxId: string): Promise<boolean> => {
    const { status } = await backend.runtime('PodSandboxStatus', { pod_sandbox_id: sandboxId });
    return status?.state === SandboxState.READY;
  };
  const exists = async (sandboxId: string): Promise<boolean> => (await registry.pod(sandboxId)) !== undefined;
  let isRestored = false;
  return {
    resizes,
    pods: podDirectory({ registry, volumes, isReady, readPodView }),
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
