import * as z from 'zod/mini';
import { VOLUME_ANNOTATION } from '../../tmpfs/index.ts';

/** What is kept of a pod of this node, as Kubernetes has it. */
export interface ApiPod {
  /** By which kubelet, and so CRI, knows it. */
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  /** Being deleted: nothing is begun any more. */
  readonly isEnding: boolean;
  /** The texts of our annotations, by volume. */
  readonly volumes: Readonly<Record<string, string>>;
}

/** Enough to see that two texts differ, and more than any that makes sense has. */
const LONGEST_TEXT = 256;
/** A pod has a handful; objects are not bounded by us. */
const MOST_VOLUMES = 64;
/** The mirror of a static pod has an uid of its own; this is the uid of the pod that runs (kubelet, pkg/kubelet/types). */
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

/** Of all annotations the texts of ours, by volume. */
export function volumeTexts(annotations: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const ours = Object.entries(annotations).filter(([key]) => key.startsWith(VOLUME_ANNOTATION));
  return Object.fromEntries(
    ours
      .slice(0, MOST_VOLUMES)
      .map(([key, text]) => [key.slice(VOLUME_ANNOTATION.length), text.slice(0, LONGEST_TEXT)]),
  );
}
