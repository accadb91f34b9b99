import { steadyNow, wallDeadline } from '../core/concurrency/index.ts';
import { isServiceError } from '../core/errors/index.ts';
import { Client, type ClientReadableStream, credentials, Metadata, connectivityState, status } from '@grpc/grpc-js';
import { correctStatus } from './backend-error.ts';
import { crashPoint } from '../core/crash-points/index.ts';
import { type Messages, type Partially, decode, encode } from './messages.ts';
import { singleResponse } from './single-response.ts';

export const MAX_MESSAGE_BYTES = 16 * 1024 * 1024;

/** What a call to the backend takes over from the call that caused it. */
export interface CallOptions {
  readonly metadata?: Metadata;
  /** When the call has to have ended, by {@link steadyNow}. Without it: {@link DEFAULT_CALL_TIMEOUT_MS} from now. */
  readonly deadline?: number;
  /** Ends the call early. */
  readonly signal?: AbortSignal;
}

/** Deadline of calls that no request has caused, so that a backend that hangs does not block the shim forever. */
export const DEFAULT_CALL_TIMEOUT_MS = 10_000;

/** How long {@link Backend.responds} waits for an answer. */
export const ANSWER_MS = 1000;
/** How long an answer counts. */
const ANSWER_AGE_MS = 1000;

const UNAVAILABLE: number = status.UNAVAILABLE;
const DEADLINE_EXCEEDED: number = status.DEADLINE_EXCEEDED;
const CANCELLED: number = status.CANCELLED;
const UNIMPLEMENTED: number = status.UNIMPLEMENTED;
const UNKNOWN: number = status.UNKNOWN;
const NOT_FOUND: number = status.NOT_FOUND;

const identity = (bytes: Buffer): Buffer => bytes;

/** Between two attempts to connect. An attempt on a unix socket that nobody listens on costs next to nothing. */
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 200;
/** How long a call waits for the next attempt. grpc-js adds up to a fifth to a pause. */
const NEXT_ATTEMPT_MS = 2 * LONGEST_PAUSE_MS;

/**
 * The shim's own connection to containerd, for calls that it makes itself. While containerd is away, it tries to
 * reconnect every 0.2 s. A call waits for the next attempt, because a client that has just connected through the
 * shim has found containerd running. If that fails too, the call fails with UNAVAILABLE.
 */
export class Backend {
  readonly #client: Client;
  readonly #connectListeners = new Set<() => void>();
  /** Methods that the backend has said it does not have, since it was last connected to. */
  readonly #lacking = new Set<RuntimeMethod>();
  #closed = false;
  #asking: Promise<boolean> | undefined;
  /** When {@link responds} had its last answer. */
  #answeredAt = -Infinity;

  /** @param address `unix:///run/containerd/containerd.sock` */
  constructor(readonly address: string) {
    this.#client = new Client(address, credentials.createInsecure(), {
      'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
      'grpc.max_send_message_length': MAX_MESSAGE_BYTES,
      // With the defaults, 1 s to 120 s, resizes could fail for two minutes after a restart of containerd.
      'grpc.initial_reconnect_backoff_ms': FIRST_PAUSE_MS,
      'grpc.max_reconnect_backoff_ms': LONGEST_PAUSE_MS,
      'grpc.enable_retries': 0,
      'grpc.enable_channelz': 0,
      'grpc.use_local_subchannel_pool': 1,
      // The value that Go clients send over a unix socket.
      'grpc.default_authority': 'localhost',
    });
  }

  /**
   * Makes a unary call with bytes as they are, and returns the response's bytes as they came.
   * Rejects with grpc-js's ServiceError: code, details and trailers as the backend sent them.
   */
  async call(path: string, request: Buffer, options: CallOptions = {}): Promise<Buffer> {
    // Read-only calls leave the node unchanged.
    const changes = /\/Update\w+$/.test(path);
    if (changes) crashPoint('backend-call-before', methodOf(path));
    try {
      if (this.#isLost) await this.#nextAttempt(options.deadline);
      if (this.#closed) throw stopping();
      return await this.#unary(path, request, options);
    } finally {
      if (changes) crashPoint('backend-call-after', methodOf(path));
    }
  }

  get #isLost(): boolean {
    return (
      !this.#closed && this.#client.getChannel().getConnectivityState(false) === connectivityState.TRANSIENT_FAILURE
    );
  }

  /** Resolves when there is a connection again, or {@link NEXT_ATTEMPT_MS} is over. */
  #nextAttempt(deadline = Infinity): Promise<void> {
    const end = Math.min(deadline, steadyNow() + NEXT_ATTEMPT_MS);
    return new Promise((resolve) => {
      const ended = (): void => resolve();
      this.#client.getChannel().watchConnectivityState(connectivityState.TRANSIENT_FAILURE, wallDeadline(end), ended);
    });
  }

  #unary(path: string, request: Buffer, options: CallOptions): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      const { signal, deadline = steadyNow() + DEFAULT_CALL_TIMEOUT_MS } = options;
      const call = this.#client.makeUnaryRequest(
        path,
        identity,
        identity,
        request,
        options.metadata ?? new Metadata(),
        { deadline: wallDeadline(deadline), interceptors: [singleResponse] },
        (error, response) => {
          signal?.removeEventListener('abort', cancel);
          if (error !== null) reject(correctStatus(error));
          else resolve(response ?? Buffer.alloc(0));
        },
      );
      const cancel = (): void => call.cancel();
      if (signal?.aborted === true) cancel();
      else signal?.addEventListener('abort', cancel, { once: true });
    });
  }

  /**
   * Makes a call with a stream of responses, with bytes as they are. Without a deadline in the options it has none: such
   * calls last for as long as somebody listens. The stream fails with grpc-js's ServiceError.
   */
  stream(path: string, request: Buffer, options: CallOptions = {}): ClientReadableStream<Buffer> {
    const { metadata = new Metadata(), deadline = Infinity, signal } = options;
    const call = this.#client.makeServerStreamRequest(path, identity, identity, request, metadata, {
      deadline: wallDeadline(deadline),
    });
    call.prependListener('error', correctStatus);
    const cancel = (): void => call.cancel();
    if (signal?.aborted === true) cancel();
    else signal?.addEventListener('abort', cancel, { once: true });
    return call;
  }

  /**
   * A CRI call with decoded messages. Rejects as {@link call} does; with INTERNAL, as gRPC clients do, when the response is no such
   * message.
   */
  async runtime<Method extends RuntimeMethod>(
    method: Method,
    request: Partially<Messages[`${Method}Request`]>,
    options?: CallOptions,
  ): Promise<Messages[`${Method}Response`]> {
    const bytes = encode(`${method}Request` as keyof Messages, request as Partially<Messages[keyof Messages]>);
    try {
      const response = await this.call(runtimePath(method), bytes, options);
      return decodeResponse(method, response);
    } catch (error) {
      if (isUnimplemented(error)) this.#lacking.add(method);
      throw error;
    }
  }

  /** Whether the backend has answered Unimplemented to {@link runtime}, and is the same one still. */
  lacks(method: RuntimeMethod): boolean {
    return this.#lacking.has(method);
  }

  /**
   * Calls `listener` at every new connection to the backend, the first one included: what was known of the node has
   * then to be compared with it again. Keeps the connection up from now on.
   */
  onConnected(listener: () => void): void {
    this.#connectListeners.add(listener);
    if (this.#connectListeners.size === 1) this.#watch(this.#client.getChannel().getConnectivityState(true));
  }

  #watch(current: connectivityState): void {
    if (this.#closed) return;
    if (current === connectivityState.READY) this.#lacking.clear();
    if (current === connectivityState.READY) for (const listener of this.#connectListeners) listener();
    this.#client.getChannel().watchConnectivityState(current, Infinity, (error) => {
      if (error !== undefined || this.#closed) return;
      // `true`: an idle channel reconnects, so that a restart of the backend is noticed without a request.
      this.#watch(this.#client.getChannel().getConnectivityState(true));
    });
  }

  /** Whether there is a connection now. */
  get isConnected(): boolean {
    return !this.#closed && this.#client.getChannel().getConnectivityState(false) === connectivityState.READY;
  }

  /**
   * Whether the backend answers a call within {@link ANSWER_MS}, with any status. Callers in the second after an answer, and concurrent
   * ones, share one call. Never rejects.
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
      const code: number = isServiceError(error) ? error.code : UNAVAILABLE;
      if (code === UNAVAILABLE || code === DEADLINE_EXCEEDED || code === CANCELLED) return false;
    }
    this.#answeredAt = steadyNow();
    return true;
  }

  /** Whether the shim makes no more calls, because it stops. */
  get isClosed(): boolean {
    return this.#closed;
  }

  close(): void {
    this.#closed = true;
    this.#client.close();
  }
}

function stopping(): Error {
  const details = 'the shim stops';
  return Object.assign(new Error(details), { code: CANCELLED, details, metadata: new Metadata() });
}

function decodeResponse<Method extends RuntimeMethod>(method: Method, response: Buffer): Messages[`${Method}Response`] {
  try {
    return decode(`${method}Response` as keyof Messages, response) as Messages[`${Method}Response`];
  } catch (error) {
    const details = `the answer to ${method} is not a ${method}Response`;
    const failure = new Error(details, { cause: error });
    throw Object.assign(failure, { code: status.INTERNAL, details, metadata: new Metadata() });
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

const methodOf = (path: string): string => path.slice(path.lastIndexOf('/') + 1);

/**
 * Whether an error of the backend means that it lacks the method. containerd 2.2 answers UpdatePodSandboxResources with Unknown
 * "not implemented yet", which kubelet 1.36 treats as Unimplemented, too (kubelet
 * pkg/kubelet/kuberuntime/kuberuntime_container.go, updatePodSandboxResources).
 */
export function isUnimplemented(error: unknown): boolean {
  if (!isServiceError(error)) return false;
  const code: number = error.code;
  return code === UNIMPLEMENTED || (code === UNKNOWN && error.details.includes('not implemented'));
}

/** Whether an error of the backend means that the pod or container does not exist. */
export function isNotFound(error: unknown): boolean {
  if (!isServiceError(error)) return false;
  const code: number = error.code;
  return code === NOT_FOUND;
}

/**
 * Whether a call has failed without an answer of the backend, so that it may still have an effect: a containerd that is killed leaves the
 * runc that it has started, and one that was stopped continues.
 */
export function isUnanswered(error: unknown): boolean {
  if (!isServiceError(error)) return false;
  const code: number = error.code;
  return code === UNAVAILABLE || code === DEADLINE_EXCEEDED || code === CANCELLED;
}

/**
 * Whether a call has failed because the backend cannot be asked at present. A containerd that starts accepts connections before it
 * serves calls: until then it answers Unknown "server is not initialized yet" (instrumented_service.go).
 */
export const isNotServing = (error: unknown): boolean =>
  isUnanswered(error) || (isServiceError(error) && error.details.includes('server is not initialized yet'));
