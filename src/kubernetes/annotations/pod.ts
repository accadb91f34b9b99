import * as z from 'zod/mini';
import { VOLUME_ANNOTATION } from '../../tmpfs/index.ts';

/** The fields of a pod in Kubernetes that the shim uses. */
export interface ApiPod {
  /** The uid of the pod in kubelet and in the CRI. */
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  /** The pod is being deleted: no further resizes start. */
  readonly isEnding: boolean;
  /** The texts of our annotations, by volume. */
  readonly volumes: Readonly<Record<string, string>>;
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

export const metadataSchema = z.object({
  uid: z.string(),
  name: z.string(),
  namespace: z.string(),
  resourceVersion: z.string(),
  deletionTimestamp: z.nullish(z.string()),
  annotations: z.nullish(z.record(z.string(), z.string())),
});

export function podOf(metadata: z.infer<typeof metadataSchema>): ApiPod {
  const annotations = metadata.annotations ?? {};
  return {
    uid: annotations[MIRROR_ANNOTATION] ?? metadata.uid,
    namespace: metadata.namespace,
    name: metadata.name,
    isEnding: typeof metadata.deletionTimestamp === 'string',
    volumes: volumeTexts(annotations),
  };
}

/** Returns the texts of our annotations, by volume. */
export function volumeTexts(annotations: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const ours = Object.entries(annotations).filter(([key]) => key.startsWith(VOLUME_ANNOTATION));
  return Object.fromEntries(
    ours
      .slice(0, MOST_VOLUMES)
      .map(([key, text]) => [key.slice(VOLUME_ANNOTATION.length), text.slice(0, LONGEST_TEXT)]),
  );
}
