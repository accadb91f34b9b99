import * as z from 'zod/mini';
import { type Api, ApiRefusal, microTime, readText } from '../../kubernetes/client/index.ts';

/** Says on the Lease that nothing is to be installed any more, and why: `<node>: <reason>`. An operator takes it off. */
export const HALTED = 'cri-resize-shim.io/halted';

/** The Lease as the API server has it: all of it goes back when it is changed. */
const leaseSchema = z.looseObject({
  metadata: z.looseObject({
    resourceVersion: z.exactOptional(z.string()),
    annotations: z.exactOptional(z.record(z.string(), z.string())),
  }),
  spec: z.exactOptional(
    z.looseObject({
      holderIdentity: z.exactOptional(z.string()),
      leaseDurationSeconds: z.exactOptional(z.number()),
      acquireTime: z.exactOptional(z.string()),
      renewTime: z.exactOptional(z.string()),
      leaseTransitions: z.exactOptional(z.number()),
    }),
  ),
});
export type Lease = z.infer<typeof leaseSchema>;

export const holderOf = ({ spec }: Lease): string | undefined =>
  spec?.holderIdentity === '' ? undefined : spec?.holderIdentity;
export const haltOf = ({ metadata }: Lease): string | undefined => metadata.annotations?.[HALTED];

/** The Lease in somebody's hand from now on, or still. */
export function heldBy(lease: Lease, holder: string, durationMs: number): Lease {
  const now = microTime(Date.now());
  const { spec = {} } = lease;
  const isNew = holderOf(lease) !== holder;
  return {
    ...lease,
    spec: {
      ...spec,
      holderIdentity: holder,
      // The API server takes whole seconds, and at least one.
      leaseDurationSeconds: Math.max(1, Math.ceil(durationMs / 1000)),
      renewTime: now,
      ...(isNew && { acquireTime: now, leaseTransitions: (spec.leaseTransitions ?? 0) + 1 }),
    },
  };
}

/** The Lease in nobody's hand. */
export function released({ spec = {}, ...lease }: Lease): Lease {
  const rest = Object.entries(spec).filter(([name]) => name !== 'holderIdentity');
  return { ...lease, spec: Object.fromEntries(rest) };
}

export const halted = ({ metadata, ...lease }: Lease, why: string): Lease => ({
  ...lease,
  metadata: { ...metadata, annotations: { ...metadata.annotations, [HALTED]: why } },
});

export interface LeaseStore {
  /** What is there now, made if it is not there. */
  read(signal: AbortSignal): Promise<Lease>;
  /** Gives whether it was written: it was not when somebody else has written it since it was read. */
  write(lease: Lease, signal: AbortSignal): Promise<boolean>;
}

const IDLE_MS = 10_000;
const LONGEST = 256 * 1024;

/** One Lease of the Kubernetes API. Everything rejects as {@link Api} does. */
export function leaseStore(api: Api, namespace: string, name: string): LeaseStore {
  const folder = `/apis/coordination.k8s.io/v1/namespaces/${encodeURIComponent(namespace)}/leases`;
  const one = `${folder}/${encodeURIComponent(name)}`;
  const ask = async (
    method: 'GET' | 'POST' | 'PUT',
    path: string,
    signal: AbortSignal,
    body?: object,
  ): Promise<Lease> => {
    const response = await api({ method, path, idleMs: IDLE_MS, signal, ...(body !== undefined && { body }) });
    return leaseSchema.parse(JSON.parse(await readText(response, LONGEST)));
  };
  const fresh = { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata: { namespace, name }, spec: {} };
  return {
    async read(signal) {
      const there = await orUndefined(404, ask('GET', one, signal));
      // Made by another one meanwhile: then that one's.
      return there ?? (await orUndefined(409, ask('POST', folder, signal, fresh))) ?? (await ask('GET', one, signal));
    },
    async write(lease, signal) {
      return (await orUndefined(409, ask('PUT', one, signal, lease))) !== undefined;
    },
  };
}

async function orUndefined<Value>(status: number, asked: Promise<Value>): Promise<Value | undefined> {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof ApiRefusal && error.status === status) return undefined;
    throw error;
  }
}
