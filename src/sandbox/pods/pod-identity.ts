import type { PodDescription } from '../../runtime/index.ts';
import type { Registry } from './registry.ts';

export interface PodIdentity {
  readonly sandboxId: string;
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
}

/**
 * The source of a pod for kubelet: `file`, `http` or `api`. kubelet sets this annotation of every pod itself, so a
 * pod's author cannot (kubelet pkg/kubelet/types/pod_update.go, ConfigSourceAnnotationKey).
 */
const SOURCE_ANNOTATION = 'kubernetes.io/config.source';

/** Whether kubelet has the pod from a file or a URL of this node. Only such a pod has a mirror pod. */
export function isStaticPod({ annotations }: Pick<PodDescription, 'annotations'>): boolean {
  const source = annotations[SOURCE_ANNOTATION];
  return source === 'file' || source === 'http';
}

/** Returns the identity of a described pod. */
export const identityOf = ({ sandboxId, metadata }: PodDescription): PodIdentity => ({
  sandboxId,
  uid: metadata.uid,
  namespace: metadata.namespace,
  name: metadata.name,
});

/**
 * Returns the key of a pod in locks: its uid, since a sandbox that has ended may still exist next to the one that
 * replaces it, and both have their containers below the cgroup of the pod. Without a uid, the id of the sandbox.
 */
export const lockKeyOf = ({ sandboxId, metadata }: PodDescription): string =>
  metadata.uid === '' ? sandboxId : metadata.uid;

/**
 * Returns the newest sandbox of a pod; undefined if none is known. kubelet creates another sandbox when one has ended,
 * counts them (`attempt`), and removes the ended one later. The containers of all have their cgroups below the pod's.
 * Undefined without a uid, as crictl may create pods: it is unknown whether two sandboxes are of one pod.
 */
export const newestSandbox = ({ pods }: Pick<Registry, 'pods'>, podUid: string): PodDescription | undefined =>
  pods
    .filter(({ metadata }) => podUid !== '' && metadata.uid === podUid)
    .sort((one, other) => attemptOf(one) - attemptOf(other))
    .at(-1);

/** Whether a newer sandbox of the same pod is known: this one has ended, and is still there. */
export function isReplaced(registry: Pick<Registry, 'pods'>, pod: PodDescription): boolean {
  const newest = newestSandbox(registry, pod.metadata.uid);
  return newest !== undefined && attemptOf(newest) > attemptOf(pod);
}

const attemptOf = ({ metadata }: PodDescription): number => metadata.attempt ?? 0;
