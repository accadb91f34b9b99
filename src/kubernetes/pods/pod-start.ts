import * as z from 'zod/mini';
import type { ApiPodIdentity } from './pod.ts';

/** What the beginning of a pod object says. */
export interface PodStart {
  readonly pod: ApiPodIdentity;
  readonly version: string;
}

/**
 * The first fields of an event or of a pod, in the order in which Go encodes them. What a pod's author chooses freely, such as labels
 * and annotations, comes after them.
 */
const FIRST_FIELDS =
  /^(?:\{"type":"[A-Z]+","object":)?\{(?:"(?:kind|apiVersion)":"[^"\\]*",)*"metadata":\{((?:"(?:name|generateName|namespace|selfLink|uid|resourceVersion)":"[^"\\]*",)+)/;

const fieldsSchema = z.object({
  uid: z.string(),
  namespace: z.string(),
  name: z.string(),
  resourceVersion: z.string(),
});

/** Reads the beginning of a watch event or of a list's item. Returns undefined if it is not as the API server encodes it. */
export function podStart(text: string): PodStart | undefined {
  const fields = FIRST_FIELDS.exec(text)?.[1]?.slice(0, -1);
  if (fields === undefined) return undefined;
  const parsed = fieldsSchema.safeParse(JSON.parse(`{${fields}}`));
  if (!parsed.success) return undefined;
  const { resourceVersion, ...pod } = parsed.data;
  return { pod, version: resourceVersion };
}
