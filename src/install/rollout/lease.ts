import * as z from 'zod/mini';
import { wallTime } from '../../core/concurrency/index.ts';
import { type Api, ApiRefusal, microTime, readText } from '../../kubernetes/client/index.ts';

/** Annotation of the Lease that halts all installations, with the reason: `<node>: <reason>`. An operator removes it. */
export const HALTED = 'cri-resize-shim.io/halted';

/** The Lease of the API server. Updates send back all fields, known or not. */
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

/** Acquires or renews the Lease. */
export function heldBy(lease: Lease, holder: string, durationMs: number): Lease {
  const now = microTime(wallTime());
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

/** Releases the Lease. */
export function released({ spec = {}, ...lease }: Lease): Lease {
  const rest = Object.entries(spec).filter(([name]) => name !== 'holderIdentity');
  return { ...lease, spec: Object.fromEntries(rest) };
}

export const halted = ({ metadata, ...lease }: Lease, why: string): Lease => ({
  ...lease,
  metadata: { ...metadata, annotations: { ...metadata.annotations, [HALTED]: why } },
});

export interface LeaseStore {
  /** Reads the Lease, and creates it if it does not exist. */
  read(signal: AbortSignal): Promise<Lease>;
  /** Returns false if somebody else has written the Lease since it was read. */
  write(lease: Lease, signal: AbortSignal): Promise<boolean>;
}

const IDLE_MS = 10_000;
const LONGEST = 256 * 1024;

/** A Lease in the Kubernetes API. All methods reject like {@link Api}. */
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
      // 409: another pod has created it in the meantime.
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
