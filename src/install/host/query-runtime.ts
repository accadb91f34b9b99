import { status } from '@grpc/grpc-js';
import * as z from 'zod/mini';
import { steadyNow } from '../../core/concurrency/index.ts';
import { isServiceError } from '../../core/errors/index.ts';
import { Backend, SHIM_STATUS_PATH, decode } from '../../runtime/index.ts';

const readiness = z.object({
  ready: z.boolean(),
  // Missing in shims older than the installer of 0.1.0.
  connections: z.optional(z.number()),
  checks: z.array(z.object({ name: z.string(), ready: z.boolean(), says: z.string() })),
  // Set if it forwards every call.
  passThrough: z.optional(z.enum(['configured', 'invalid configuration'])),
});

/** The CRI runtime that answers on a socket. */
export interface Runtime {
  /** `containerd`, also through the shim. */
  readonly name: string;
  readonly version: string;
  /** Readiness of the shim; undefined if the socket is not served by a shim. */
  readonly shim: z.infer<typeof readiness> | undefined;
}

const ANSWER_MS = 5000;
const KEY = 'cri-resize-shim';

/** Calls Version and Status. Rejects with ServiceError of grpc-js if nothing answers. */
export async function queryRuntime(socket: string): Promise<Runtime> {
  const backend = new Backend(`unix://${socket}`);
  const options = { deadline: steadyNow() + ANSWER_MS };
  try {
    const { runtime_name: name, runtime_version: version } = await backend.runtime('Version', {}, options);
    const { info } = await backend.runtime('Status', { verbose: true }, options);
    const own = info[KEY] ?? (await passThroughInfo(backend, options.deadline));
    return { name, version, shim: own === undefined ? undefined : readiness.parse(JSON.parse(own)) };
  } finally {
    backend.close();
  }
}

/** Asks a shim that forwards every call, Status too. Returns undefined if the socket is not served by a shim. */
async function passThroughInfo(backend: Backend, deadline: number): Promise<string | undefined> {
  try {
    return decode('StatusResponse', await backend.call(SHIM_STATUS_PATH, Buffer.alloc(0), { deadline })).info[KEY];
  } catch (error) {
    if (isServiceError(error) && error.code === status.UNIMPLEMENTED) return undefined;
    throw error;
  }
}
