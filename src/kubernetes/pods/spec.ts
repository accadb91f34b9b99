import * as z from 'zod/mini';
import { bytes, parseMilli, parseQuantity } from '../../core/quantities/index.ts';
import type { Amounts, AppRestartPolicy, PodSpec, QosClass, ResizePolicy, SpecContainer } from '../../sandbox/index.ts';

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

/** Returns the fields of a pod's spec that matter to a resize. Undefined when any of them is not as Kubernetes documents it. */
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
 * Returns the restart policy of an app container: its own (KEP-5307), or that of the pod. No policy is known in a pod with rules: that of
 * any container may restart all of them (KEP-5532).
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
