import * as z from 'zod/mini';
import { bytes, type IgnoredPodReason, parseMilli, parseQuantity } from '../../core/index.ts';
import type {
  Amounts,
  AppRestartPolicy,
  PodIdentity,
  PodSpec,
  QosClass,
  ResizePolicy,
  SpecContainer,
} from '../../sandbox/index.ts';
import { isPodUid, VOLUME_ANNOTATION } from '../../tmpfs/index.ts';

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
  /** Undefined if the server sent no spec, or a spec that the shim does not understand. */
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

/** Returns the parts of an API server pod that the shim uses. A mirror pod has the uid of its static pod. */
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
 * Returns the uid that a mirror pod's static pod has in the CRI. Anyone who may create a pod can set this annotation,
 * with any uid. It counts only for a mirror pod, which kubelet creates as owned by its Node (kubelet
 * pkg/kubelet/pod/mirror_client.go). An owner can be forged too, so users of objects check {@link whyForeign}.
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
 * Returns why an object of the API server does not belong to this pod of the node; undefined if it does. A uid alone
 * proves nothing, because a pod's author can imitate a mirror pod.
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

/** Bounds memory. Kubernetes has no limit of its own; a pod object has at most 1.5 MiB. */
const MOST = 256;

const quantity = z.union([z.string(), z.number()]);
const amountsSchema = z.nullish(z.object({ cpu: z.nullish(quantity), memory: z.nullish(quantity) }));
const resourcesSchema = z.nullish(z.object({ limits: amountsSchema, requests: amountsSchema }));
const containerSchema = z.object({
  name: z.string().check(z.maxLength(63)),
  restartPolicy: z.nullish(z.string()),
  restartPolicyRules: z.nullish(z.array(z.unknown())),
  resources: resourcesSchema,
  resizePolicy: z.nullish(z.array(z.object({ resourceName: z.string(), restartPolicy: z.string() }))),
});
const containersSchema = z.nullish(z.array(containerSchema).check(z.maxLength(MOST)));
const volumeSchema = z.object({
  name: z.string().check(z.maxLength(63)),
  emptyDir: z.nullish(z.object({ medium: z.nullish(z.string()), sizeLimit: z.nullish(quantity) })),
});
const specSchema = z.object({
  containers: z.array(containerSchema).check(z.maxLength(MOST)),
  initContainers: containersSchema,
  ephemeralContainers: containersSchema,
  restartPolicy: z.nullish(z.string()),
  resources: resourcesSchema,
  priority: z.nullish(z.number()),
  volumes: z.nullish(z.array(volumeSchema).check(z.maxLength(MOST))),
});
const phaseSchema = z.object({ phase: z.string() });
const statusSchema = z.object({ qosClass: z.enum(['Guaranteed', 'Burstable', 'BestEffort']) });

/** Returns the pod spec fields that matter to a resize. Undefined if any is not as Kubernetes documents it. */
export function specOf(given: unknown, status: unknown): PodSpec | undefined {
  const parsed = specSchema.safeParse(given);
  if (!parsed.success) return undefined;
  const { containers, initContainers, ephemeralContainers, resources, priority, volumes } = parsed.data;
  const restarts = restartPolicies(parsed.data);
  try {
    const kindOf = ({ restartPolicy }: Container): SpecContainer['kind'] =>
      restartPolicy === 'Always' ? 'sidecar' : 'init';
    return {
      containers: [
        ...(initContainers ?? []).map((container) => containerOf(container, kindOf(container))),
        ...containers.map((container) => ({ ...containerOf(container, 'app'), ...restarts(container) })),
        ...(ephemeralContainers ?? []).map((container) => containerOf(container, 'ephemeral')),
      ],
      limits: amountsOf(resources?.limits),
      requests: amountsOf(resources?.requests),
      qosClass: qosOf(status),
      priority: priority ?? 0,
      ...(hasEnded(status) && { hasEnded: true as const }),
      volumes: new Map((volumes ?? []).flatMap(volumeOf)),
    };
  } catch (error) {
    if (error instanceof NotUnderstood) return undefined;
    throw error;
  }
}

type Container = z.infer<typeof containerSchema>;
type Quantity = z.infer<typeof quantity> | null | undefined;

/**
 * Returns the restart policy of an app container: its own (KEP-5307) or the pod's. Unknown if the pod has rules: a rule
 * of any container may restart all of them (KEP-5532).
 */
function restartPolicies(
  spec: z.infer<typeof specSchema>,
): (container: Container) => { readonly restartPolicy?: AppRestartPolicy } {
  const all = [...spec.containers, ...(spec.initContainers ?? [])];
  const hasRules = all.some(({ restartPolicyRules }) => (restartPolicyRules ?? []).length > 0);
  return ({ restartPolicy }) => {
    const policy = restartPolicy ?? spec.restartPolicy;
    return isRestartPolicy(policy) && !hasRules ? { restartPolicy: policy } : {};
  };
}

const isRestartPolicy = (text: string | null | undefined): text is AppRestartPolicy =>
  text === 'Always' || text === 'OnFailure' || text === 'Never';

class NotUnderstood extends Error {}

function containerOf({ name, resources, resizePolicy }: Container, kind: SpecContainer['kind']): SpecContainer {
  return {
    name,
    kind,
    limits: amountsOf(resources?.limits),
    requests: amountsOf(resources?.requests),
    resizePolicy: policyOf(resizePolicy ?? []),
  };
}

function policyOf(policies: NonNullable<Container['resizePolicy']>): ResizePolicy {
  const of = (resource: string): ResizePolicy['cpu'] => {
    const policy = policies.find(({ resourceName }) => resourceName === resource)?.restartPolicy;
    return policy === 'RestartContainer' ? policy : 'NotRequired';
  };
  return { cpu: of('cpu'), memory: of('memory') };
}

function amountsOf(amounts: z.infer<typeof amountsSchema>): Amounts {
  const memory = amountOf(amounts?.memory, parseQuantity);
  const milliCpu = amountOf(amounts?.cpu, parseMilli);
  return { ...(memory !== undefined && { memory: bytes(memory) }), ...(milliCpu !== undefined && { milliCpu }) };
}

/** Returns undefined for an absent quantity and for 0, which is no limit. Throws NotUnderstood. */
function amountOf(given: Quantity, parse: (text: string) => number | undefined): number | undefined {
  if (given === undefined || given === null) return undefined;
  const amount = parse(String(given));
  if (amount === undefined) throw new NotUnderstood();
  return amount === 0 ? undefined : amount;
}

function volumeOf({
  name,
  emptyDir,
}: z.infer<typeof volumeSchema>): [string, { sizeLimit?: ReturnType<typeof bytes> }][] {
  if (emptyDir?.medium !== 'Memory') return [];
  const sizeLimit = amountOf(emptyDir.sizeLimit, parseQuantity);
  return [[name, sizeLimit === undefined ? {} : { sizeLimit: bytes(sizeLimit) }]];
}

/** Whether the phase of a pod is final (kubelet pkg/api/v1/pod, IsPodTerminal). */
function hasEnded(status: unknown): boolean {
  const parsed = phaseSchema.safeParse(status);
  return parsed.success && (parsed.data.phase === 'Succeeded' || parsed.data.phase === 'Failed');
}

function qosOf(status: unknown): QosClass | undefined {
  const parsed = statusSchema.safeParse(status);
  return parsed.success ? parsed.data.qosClass : undefined;
}
