import { type CancelSignal, Code, crashPoint, isServiceError, Metadata, MiB, steadyNow } from '../core/index.ts';
import { isUnimplemented } from './backend-errors.ts';
import { type BackendCall, Channel } from './channel/channel.ts';
import { decode, decodeList, encode } from './codec.ts';
import type { Messages, Partially } from './messages.ts';

export const MAX_MESSAGE_BYTES = 16 * MiB;

/** Options of a backend call that are taken from the call that caused it. */
export interface CallOptions {
  readonly metadata?: Metadata;
  /** Deadline of the call, by {@link steadyNow}. Default: {@link DEFAULT_CALL_TIMEOUT_MS} from now. */
  readonly deadline?: number;
  /** Ends the call early. */
  readonly signal?: CancelSignal;
}

/** Deadline of calls that no request has caused, so that a hanging backend does not block the shim forever. */
export const DEFAULT_CALL_TIMEOUT_MS = 10_000;

/** How long {@link Backend.responds} waits for an answer. */
export const ANSWER_MS = 1000;
/** How long an answer counts, in milliseconds. */
const ANSWER_AGE_MS = 1000;

/**
 * The shim's own connection to containerd, for calls that it makes itself. Without containerd, it tries to reconnect
 * every 0.2 s. A call waits for the next attempt: a client that has just connected through the shim proves that
 * containerd runs. If that attempt fails, the call fails with UNAVAILABLE.
 */
export class Backend {
  readonly #channel: Channel;
  readonly #connectListeners = new Set<() => void>();
  /** Methods that the backend has reported as unimplemented since the last connection. */
  readonly #lacking = new Set<RuntimeMethod>();
  #closed = false;
  #asking: Promise<boolean> | undefined;
  /** Time of the last answer to {@link responds}. */
  #answeredAt = -Infinity;

  /** @param address `unix:///run/containerd/containerd.sock` */
  constructor(readonly address: string) {
    const path = address.replace(/^unix:(\/\/)?/, '');
    this.#channel = new Channel(path, MAX_MESSAGE_BYTES, () => this.#connected());
  }

  /**
   * Makes a unary call with bytes as they are, and returns the response's bytes unchanged.
   * Rejects with a ServiceError: code, details and trailers as the backend sent them.
   */
  call(path: string, request: Buffer, options: CallOptions = {}): Promise<Buffer> {
    const { metadata, deadline = steadyNow() + DEFAULT_CALL_TIMEOUT_MS, signal } = options;
    const call = { path, message: request, metadata, deadline, signal };
    // Read-only calls leave the node unchanged.
    return /\/Update\w+$/.test(path) ? this.#change(call) : this.#channel.call(call);
  }

  async #change(call: BackendCall): Promise<Buffer> {
    crashPoint('backend-call-before', methodOf(call.path));
    try {
      return await this.#channel.call(call);
    } finally {
      crashPoint('backend-call-after', methodOf(call.path));
    }
  }

  /** A decoded CRI call. Rejects as {@link call}, or as gRPC clients with INTERNAL if it cannot be decoded. */
  async runtime<Method extends RuntimeMethod>(
    method: Method,
    request: Partially<Messages[`${Method}Request`]>,
    options?: CallOptions,
  ): Promise<Messages[`${Method}Response`]> {
    const bytes = encode<`${Method}Request`>(`${method}Request`, request);
    try {
      const response = await this.call(runtimePath(method), bytes, options);
      return await decodeResponse(method, response);
    } catch (error) {
      if (isUnimplemented(error)) this.#lacking.add(method);
      throw error;
    }
  }

  /** Whether the current backend has answered Unimplemented to {@link runtime}. */
  lacks(method: RuntimeMethod): boolean {
    return this.#lacking.has(method);
  }

  /**
   * Calls `listener` at every new connection to the backend, including the first: the known state of the node must then
   * be compared with the backend again. Keeps the connection open from now on.
   */
  onConnected(listener: () => void): void {
    this.#connectListeners.add(listener);
    if (this.#connectListeners.size > 1) return;
    if (this.#channel.isConnected) this.#connected();
    this.#channel.keepConnected();
  }

  #connected(): void {
    this.#lacking.clear();
    for (const listener of this.#connectListeners) listener();
  }

  /** Whether there is a connection now. */
  get isConnected(): boolean {
    return !this.#closed && this.#channel.isConnected;
  }

  /**
   * Whether the backend answers a call within {@link ANSWER_MS}, with any status. Callers in the second after an
   * answer, and concurrent ones, share one call. Never rejects.
   */
  responds(): Promise<boolean> {
    if (!this.isConnected) return Promise.resolve(false);
    if (steadyNow() - this.#answeredAt < ANSWER_AGE_MS) return Promise.resolve(true);
    this.#asking ??= this.#ask().finally(() => (this.#asking = undefined));
    return this.#asking;
  }

  async #ask(): Promise<boolean> {
    try {
      await this.call(runtimePath('Version'), Buffer.alloc(0), { deadline: steadyNow() + ANSWER_MS });
    } catch (error) {
      const code: number = isServiceError(error) ? error.code : Code.UNAVAILABLE;
      if (code === Code.UNAVAILABLE || code === Code.DEADLINE_EXCEEDED || code === Code.CANCELLED) return false;
    }
    this.#answeredAt = steadyNow();
    return true;
  }

  /** Whether the shim is stopping and makes no further calls. */
  get isClosed(): boolean {
    return this.#closed;
  }

  close(): void {
    this.#closed = true;
    this.#channel.close();
  }
}

async function decodeResponse<Method extends RuntimeMethod>(
  method: Method,
  response: Buffer,
): Promise<Messages[`${Method}Response`]> {
  try {
    const name = `${method}Response` as const;
    const isList = name === 'ListPodSandboxResponse' || name === 'ListContainersResponse';
    const message = isList ? await decodeList(name, response) : decode(name as keyof Messages, response);
    return message as Messages[`${Method}Response`];
  } catch (error) {
    const details = `the answer to ${method} is not a ${method}Response`;
    const wrong = new Error(details, { cause: error });
    throw Object.assign(wrong, { code: Code.INTERNAL, details, metadata: new Metadata() });
  }
}

/** The CRI calls that the shim makes itself. */
export type RuntimeMethod =
  | 'Version'
  | 'UpdateContainerResources'
  | 'UpdatePodSandboxResources'
  | 'PodSandboxStatus'
  | 'ListPodSandbox'
  | 'ListContainers'
  | 'ContainerStatus'
  | 'Status'
  | 'RuntimeConfig';

/** `/runtime.v1.RuntimeService/<method>` */
export const runtimePath = (method: string): string => `/runtime.v1.RuntimeService/${method}`;

/**
 * The call that the shim answers without the runtime, also if it forwards every call of the CRI, Status too. Its
 * response is a StatusResponse with nothing but the shim's entry in `info`.
 */
export const SHIM_STATUS_PATH = '/cri-resize-shim.v1.Shim/Status';

const methodOf = (path: string): string => path.slice(path.lastIndexOf('/') + 1);
