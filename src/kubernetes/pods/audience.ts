import type { ApiPod, ApiPodIdentity } from './pod.ts';

/** Receives the pods of the node. Must not throw. */
export interface PodAudience {
  /** Replaces all pods. */
  replace(pods: readonly ApiPod[]): void;
  /** A pod was added or changed. */
  present(pod: ApiPod): void;
  gone(pod: ApiPodIdentity): void;
}

/**
 * Passes on pods. Also reports the previous identity as gone when an object changes its identity: its author can claim
 * and disclaim that it is a mirror pod, and a deletion only contains the last uid. At any time, the API server has one
 * pod with a namespace and name.
 */
export function perObject(audience: PodAudience): PodAudience {
  let known = new Map<string, ApiPodIdentity>();
  const forget = (pod: ApiPodIdentity): void => {
    const last = known.get(nameOf(pod)) ?? pod;
    known.delete(nameOf(pod));
    audience.gone(last);
  };
  return {
    replace(pods) {
      known = new Map(pods.map((pod) => [nameOf(pod), identityOf(pod)]));
      audience.replace(pods);
    },
    present(pod) {
      if ((known.get(nameOf(pod))?.uid ?? pod.uid) !== pod.uid) forget(pod);
      known.set(nameOf(pod), identityOf(pod));
      audience.present(pod);
    },
    gone: forget,
  };
}

const nameOf = ({ namespace, name }: ApiPodIdentity): string => JSON.stringify([namespace, name]);

/** Returns only the identity, without other fields such as the spec. */
const identityOf = ({ uid, namespace, name }: ApiPodIdentity): ApiPodIdentity => ({ uid, namespace, name });
