import { hostname } from 'node:os';
import { type Config, Reason, ShimError, systemClock } from '../core/index.ts';
import type { KubernetesOptions, KubernetesWatch } from '../kubernetes/annotations/annotations.ts';
import type { LocalPod } from '../kubernetes/annotations/requests.ts';
import {
  applySizeLimits,
  excesses,
  identityOf,
  isStaticPod,
  newestSandbox,
  type Registry,
  setVolumeAnnotated,
} from '../sandbox/index.ts';
import type { PodResizes } from './pod-resizes.ts';
import type { ResizeCore } from './resize-core.ts';

/**
 * Watches the pods of this node in Kubernetes with `--kubeconfig`: their annotations become requests, and their
 * specs and the node's allocatable are known from then on. Call it after the resizes of an earlier process
 * are restored. Loads src/kubernetes/annotations on demand, so that nodes without the flag spend no memory on it.
 */
export async function watchKubernetes(
  { kubeconfig, nodeName }: Pick<Config, 'kubeconfig' | 'nodeName'>,
  { node, decreaseReclaimer, podResizes, apiServer }: ResizeCore,
): Promise<KubernetesWatch> {
  const { watchAnnotations } = await import('../kubernetes/annotations/annotations.ts');
  const { registry, policies, log, counters } = node;
  const watch = watchAnnotations({
    kubeconfig,
    // The default node name of kubelet.
    nodeName: nodeName === '' ? hostname().trim().toLowerCase() : nodeName,
    resizes: podResizes.resizes,
    pods: {
      find: (uid) => findLocal(registry, podResizes.pods, uid),
      policy: (sandboxId, volume) => policies.policy(sandboxId, volume),
      annotated: (sandboxId, volume, isThere) => setVolumeAnnotated(node, sandboxId, volume, isThere),
      ...namesIn(registry),
      sizeLimitsSeen({ uid, namespace, name }, isChanged) {
        const pod = newestSandbox(registry, uid);
        // Another object may claim the uid of this pod.
        if (pod === undefined || pod.metadata.namespace !== namespace || pod.metadata.name !== name) return;
        void applySizeLimits(node, pod, isChanged);
      },
    } satisfies KubernetesOptions['pods'],
    counters,
    clock: systemClock,
    random: Math.random,
    log,
  });
  apiServer.watched(watch);
  registry.watch({
    podAdded: ({ metadata }) => watch.podAdded(metadata),
  });
  node.transactions.listen({
    ends({ pod, before, target }, _records, error) {
      if (error !== undefined) return;
      for (const { volume, warning } of excesses(before, target)) watch.volumeExceeds(identityOf(pod), volume, warning);
    },
  });
  decreaseReclaimer.watch((uid, { message }) => {
    const pod = registry.pods.find(({ metadata }) => metadata.uid === uid);
    if (pod !== undefined) watch.decreaseDeferred(pod.metadata, message);
  });
  return watch;
}

/** Returns the names of this node's pods, with which objects of the API server are compared. */
const namesIn = (registry: Registry): Pick<KubernetesOptions['pods'], 'named' | 'isStatic'> => ({
  named: (uid) =>
    registry.pods
      .filter(({ metadata }) => metadata.uid === uid)
      .map((pod) => ({ ...pod.metadata, isStatic: isStaticPod(pod) })),
  isStatic(sandboxId) {
    const pod = registry.knownPod(sandboxId);
    return pod !== undefined && isStaticPod(pod);
  },
});

/** Finds a pod of this node. Asks the backend only if the pod has several sandboxes, for the one that is ready. */
async function findLocal(registry: Registry, pods: PodResizes['pods'], uid: string): Promise<LocalPod | undefined> {
  if (!registry.pods.some(({ metadata }) => metadata.uid === uid)) return undefined;
  try {
    const identity = await pods.find({ by: 'uid', uid });
    const pod = registry.pods.find(({ sandboxId }) => sandboxId === identity.sandboxId);
    return pod === undefined ? undefined : { identity, annotations: pod.annotations };
  } catch (error) {
    if (error instanceof ShimError && error.reason === Reason.UNKNOWN_POD) return undefined;
    throw error;
  }
}
