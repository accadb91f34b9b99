import * as z from 'zod/mini';
import { Backend } from '../../runtime/index.ts';

const readiness = z.object({
  ready: z.boolean(),
  // Shims before 0.1.0's installer do not say.
  connections: z.optional(z.number()),
  checks: z.array(z.object({ name: z.string(), ready: z.boolean(), says: z.string() })),
});

/** What answers the CRI on a socket. */
export interface Runtime {
  /** Of containerd: `containerd`, also through the shim. */
  readonly name: string;
  readonly version: string;
  /** How the shim itself is; undefined where none answers. */
  readonly shim: z.infer<typeof readiness> | undefined;
}

const ANSWER_MS = 5000;

/** Asks for version and status. Rejects with grpc-js's ServiceError when nothing answers. */
export async function askRuntime(socket: string): Promise<Runtime> {
  const backend = new Backend(`unix://${socket}`);
  const options = { deadline: Date.now() + ANSWER_MS };
  try {
    const { runtime_name: name, runtime_version: version } = await backend.runtime('Version', {}, options);
    const { info } = await backend.runtime('Status', { verbose: true }, options);
    const own = info['cri-resize-shim'];
    return { name, version, shim: own === undefined ? undefined : readiness.parse(JSON.parse(own)) };
  } finally {
    backend.close();
  }
}
