import * as z from 'zod/mini';
import { VOLUME_ANNOTATION, isPodUid } from '../../tmpfs/index.ts';
import type { IgnoredPodReason } from '../../observe/index.ts';
import type { PodIdentity, PodSpec } from '../../sandbox/index.ts';
import { specOf } from './spec.ts';

/** A pod's names, as both kubelet and the API server know them. */
export type ApiPodIdentity = Omit<PodIdentity, 'sandboxId'>;

/** The fields of a pod in Kubernetes that the shim uses. */
export interface ApiPod extends ApiPodIdentity {
  /** The uid is that of the static pod that this object says it mirrors. Anyone who may create a pod can say so. */
  readonly isMirror: boolean;
  /** The pod is being deleted: no further resizes start. */
  readonly isEnding: boolean;
  /** The texts of our annotations, by volume. */
  readonly volumes: Readonly<Record<string, string>>;
  /** Undefined: the server sent none, or one that the shim does not understand. */
  readonly spec: PodSpec | undefined;
}

/** Longer than any valid annotation, and enough to detect changes. */
const LONGEST_TEXT = 256;
/** Limits memory: a pod normally has a handful. */
const MOST_VOLUMES = 64;
/**
 * Uid of the running static pod; its mirror pod has another uid (kubelet pkg/kubelet/types/pod_update.go,
 * ConfigMirrorAnnotationKey).
 */
const MIRROR_ANNOTATION = 'kubernetes.io/config.mirror';

const metadataSchema = z.object({
  uid: z.string(),
  name: z.string(),
  namespace: z.string(),
  resourceVersion: z.string(),
  deletionTimestamp: z.nullish(z.string()),
  annotations: z.nullish(z.record(z.string(), z.string())),
  ownerReferences: z.nullish(z.array(z.object({ kind: z.string(), name: z.optional(z.string()) }))),
});

/** A pod of the API server. `spec` and `status` are not part of the format that a list or a watch must have. */
export const podSchema = z.object({
  metadata: metadataSchema,
  spec: z.optional(z.unknown()),
  status: z.optional(z.unknown()),
});

/** Returns what the shim uses of a pod of the API server. A mirror pod has the uid of the static pod that it mirrors. */
export function podOf({ metadata, spec, status }: z.infer<typeof podSchema>, nodeName: string): ApiPod {
  const { namespace, name } = metadata;
  const mirrored = mirroredUid(metadata, nodeName);
  return {
    uid: mirrored ?? metadata.uid,
    namespace,
    name,
    isMirror: mirrored !== undefined,
    isEnding: typeof metadata.deletionTimestamp === 'string',
    volumes: volumeTexts(metadata.annotations ?? {}),
    spec: specOf(spec, status),
  };
}

/**
 * Returns the uid that the static pod of a mirror pod has in the CRI. Anyone who may create a pod may also set this annotation, with
 * any uid: it counts only for a mirror pod, which kubelet creates as owned by its Node (kubelet pkg/kubelet/pod/mirror_client.go).
 * An owner can be set by anybody too, so {@link whyForeign} decides where the object is used.
 */
function mirroredUid(
  { annotations, ownerReferences }: z.infer<typeof metadataSchema>,
  nodeName: string,
): string | undefined {
  const isOwnedByNode = ownerReferences?.some(({ kind, name }) => kind === 'Node' && name === nodeName) ?? false;
  const uid = isOwnedByNode ? annotations?.[MIRROR_ANNOTATION] : undefined;
  return uid !== undefined && isPodUid(uid) ? uid : undefined;
}

/**
 * Returns why an object of the API server is not the one of this pod of the node; undefined if it is. A uid alone proves nothing,
 * because a pod's author chooses what looks like a mirror pod.
 * @param isStatic whether the pod of the node is a static pod
 */
export function whyForeign(
  claim: Pick<ApiPod, 'uid' | 'namespace' | 'name' | 'isMirror'>,
  pod: ApiPodIdentity,
  isStatic: boolean,
): Extract<IgnoredPodReason, 'other_pod' | 'not_static'> | undefined {
  if (claim.uid !== pod.uid || claim.namespace !== pod.namespace || claim.name !== pod.name) return 'other_pod';
  return claim.isMirror && !isStatic ? 'not_static' : undefined;
}

/** Returns a key for a pod. Two pods never have the same key, regardless of the characters in their names. */
export const keyOf = ({ uid, namespace, name }: ApiPodIdentity): string => JSON.stringify([namespace, name, uid]);

/** Returns the texts of our annotations, by volume. */
export function volumeTexts(annotations: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const ours = Object.entries(annotations).filter(([key]) => key.startsWith(VOLUME_ANNOTATION));
  return Object.fromEntries(
    ours
      .slice(0, MOST_VOLUMES)
      .map(([key, text]) => [key.slice(VOLUME_ANNOTATION.length), text.slice(0, LONGEST_TEXT)]),
  );
}
