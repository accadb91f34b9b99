import type { PodDescription } from '../runtime/index.ts';

export interface PodIdentity {
  readonly sandboxId: string;
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
}

/**
 * Where kubelet has a pod from: `file`, `http` or `api`. kubelet sets this annotation of every pod itself, so a pod's author cannot
 * (kubelet pkg/kubelet/types/pod_update.go, ConfigSourceAnnotationKey).
 */
const SOURCE_ANNOTATION = 'kubernetes.io/config.source';

/** Whether kubelet has the pod from a file or a URL of this node. Only such a pod has a mirror pod. */
export function isStaticPod({ annotations }: Pick<PodDescription, 'annotations'>): boolean {
  const source = annotations[SOURCE_ANNOTATION];
  return source === 'file' || source === 'http';
}

export const identityOf = ({ sandboxId, metadata }: PodDescription): PodIdentity => ({
  sandboxId,
  uid: metadata.uid,
  namespace: metadata.namespace,
  name: metadata.name,
});
