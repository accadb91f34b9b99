import { systemClock, within } from '../core/index.ts';
import type { EntryRequests, KubeletState } from '../kubelet/index.ts';
import { SandboxState } from '../runtime/index.ts';
import {
  type DecreaseReclaimer,
  identityOf,
  type Node,
  newestSandbox,
  type PodDirectory,
  type PodIdentity,
  type PodRank,
  type PodSpecs,
  podDirectory,
  qosOfCgroup,
  type ReadPodView,
  type Registry,
  type ResizeStore,
  Resizes,
  readPodView,
  resizePod,
} from '../sandbox/index.ts';

/** Resizes of pods for the resize API and for annotations. */
export interface PodResizes {
  readonly resizes: Resizes;
  readonly pods: PodDirectory;
  /** Continues the resizes of an earlier process. Called once, after the registry is synchronized with the backend. */
  restore(): Promise<void>;
  /** Continues the resizes of pods whose records could be read only after {@link restore}. */
  restoreLate(podUids: ReadonlySet<string>): Promise<void>;
  /** Starts no further resizes, and waits at most `graceMs` for running ones. Unfinished ones stay in the journal. */
  close(graceMs: number): Promise<void>;
}

/** Returns the rank of a pod: its priority and its QoS class, by the spec; without that the class of its cgroup. */
export function podRank(registry: Pick<Registry, 'knownPod'>, specs: PodSpecs, pod: PodIdentity): PodRank {
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
export function createPodResizes(node: Node, decreaseReclaimer: DecreaseReclaimer, store: ResizeStore): PodResizes {
  const { registry, backend, volumes, specs, kubelet, newest, history, log, counters } = node;
  const resizes = new Resizes({
    resizePod: (sandboxId, desired, options) => resizePod(node, sandboxId, desired, options),
    store,
    kubeletRequests: (podUid) => admittedRequests(kubelet, podUid),
    newest,
    history,
    rankOf: (pod) => podRank(registry, specs, pod),
    newestSandbox: (uid) => newestIdentity(registry, uid),
    clock: systemClock,
    random: Math.random,
    log,
    counters,
  });
  followRegistry(registry, resizes);
  const isReady = async (sandboxId: string): Promise<boolean> => {
    const { status } = await backend.runtime('PodSandboxStatus', { pod_sandbox_id: sandboxId });
    return status?.state === SandboxState.SANDBOX_READY;
  };
  const exists = async (sandboxId: string): Promise<boolean> => (await registry.pod(sandboxId)) !== undefined;
  const view: ReadPodView = (sandboxId, listed, signal) =>
    readPodView(node, decreaseReclaimer, sandboxId, listed, signal);
  let isRestored = false;
  return {
    resizes,
    pods: podDirectory({ registry, volumes, isReady, readPodView: view }),
    restore() {
      isRestored = true;
      return resizes.restore(exists);
    },
    async restoreLate(podUids) {
      // Before the first restore nothing is needed: that restore includes these records.
      if (!isRestored) return;
      const records = (await store.restore()).filter(({ podUid }) => podUids.has(podUid));
      await resizes.restore(exists, { restore: () => Promise.resolve(records) });
    },
    async close(graceMs) {
      await within(graceMs, resizes.close());
    },
  };
}
