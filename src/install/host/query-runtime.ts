import * as z from 'zod/mini';
import { steadyNow } from '../../core/concurrency/index.ts';
import { Backend } from '../../runtime/index.ts';

const readiness = z.object({
  ready: z.boolean(),
  // Missing in shims older than the installer of 0.1.0.
  connections: z.optional(z.number()),
  checks: z.array(z.object({ name: z.string(), ready: z.boolean(), says: z.string() })),
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

/** Calls Version and Status. Rejects with ServiceError of grpc-js if nothing answers. */
export async function queryRuntime(socket: string): Promise<Runtime> {
  const backend = new Backend(`unix://${socket}`);
  const options = { deadline: steadyNow() + ANSWER_MS };
  try {
    const { runtime_name: name, runtime_version: version } = await backend.runtime('Version', {}, options);
    const { info } = await backend.runtime('Status', { verbose: true }, options);
    const own = info['cri-resize-shim'];
    return { name, version, shim: own === undefined ? undefined : readiness.parse(JSON.parse(own)) };
  } finally {
    backend.close();
  }
}
