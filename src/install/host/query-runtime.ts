import * as z from 'zod/mini';
import { Code, isServiceError, messageOf, steadyNow } from '../../core/index.ts';
import { Backend, decode, SHIM_STATUS_PATH } from '../../runtime/index.ts';

const report = z.object({
  ready: z.boolean(),
  // Missing in shims older than the installer of 0.1.0.
  connections: z.optional(z.number()),
  checks: z.array(z.object({ name: z.string(), ready: z.boolean(), says: z.string() })),
  // Set if it forwards every call.
  passThrough: z.optional(z.enum(['configured', 'invalid configuration'])),
});

/** A shim's report about itself. */
export type ShimReport = z.infer<typeof report>;

/** The CRI runtime that answers on a socket. */
export interface Runtime {
  /** `containerd`, also through the shim. */
  readonly name: string;
  readonly version: string;
  /** Undefined if the socket is not served by a shim. */
  readonly shim: ShimReport | undefined;
}

const ANSWER_MS = 5000;
const KEY = 'cri-resize-shim';

/** Calls Version and Status. Rejects with a ServiceError if nothing answers. */
export async function queryRuntime(socket: string): Promise<Runtime> {
  const backend = new Backend(`unix://${socket}`);
  const options = { deadline: steadyNow() + ANSWER_MS };
  try {
    const { runtime_name: name, runtime_version: version } = await backend.runtime('Version', {}, options);
    const { info } = await backend.runtime('Status', { verbose: true }, options);
    const own = info[KEY];
    const shim = own === undefined ? await reportFrom(backend, options.deadline) : report.parse(JSON.parse(own));
    return { name, version, shim };
  } finally {
    backend.close();
  }
}

/** The runtime on a socket, or why none answers. */
export type Answer = Runtime | { readonly error: string };

/** Asks as {@link queryRuntime} does. Never rejects. */
export const answerOf = (socket: string): Promise<Answer> =>
  queryRuntime(socket).catch((error: unknown): Answer => ({ error: causeOf(error) }));

/** Extracts the reason from the message of a call that has found no connection. */
const causeOf = (error: unknown): string => /Last error: (.*)/.exec(messageOf(error))?.[1] ?? messageOf(error);

/**
 * Asks the shim alone: it answers also if containerd does not. Returns undefined if the socket is not served by a shim
 * of this version. Rejects with a ServiceError if nothing answers.
 */
export async function queryShim(socket: string): Promise<ShimReport | undefined> {
  const backend = new Backend(`unix://${socket}`);
  try {
    return await reportFrom(backend, steadyNow() + ANSWER_MS);
  } finally {
    backend.close();
  }
}

async function reportFrom(backend: Backend, deadline: number): Promise<ShimReport | undefined> {
  try {
    const response = await backend.call(SHIM_STATUS_PATH, Buffer.alloc(0), { deadline });
    const own = decode('StatusResponse', response).info[KEY];
    return own === undefined ? undefined : report.parse(JSON.parse(own));
  } catch (error) {
    if (isServiceError(error) && error.code === Code.UNIMPLEMENTED) return undefined;
    throw error;
  }
}
