import * as z from 'zod/mini';
import { type Api, ApiRefusal, parsedResponse, readText } from '../../../kubernetes/client/index.ts';

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
    return parsedResponse(leaseSchema, await readText(response, LONGEST), 'a Lease');
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
