import { type CancelSignal, Code, LONGEST_TIMER_MS, type Metadata, steadyNow } from '../../core/index.ts';
import { Connection, type ConnectionEvents } from './connection.ts';
import { failure, type Outcome, REFUSED } from './outcome.ts';
import { ResponseMemory } from './response.ts';
import { Call } from './stream.ts';

/** Pause between two attempts to connect. An attempt on a unix socket without a listener costs almost nothing. */
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 200;
/** Maximum time that a call waits for the next attempt after a failed one. */
export const NEXT_ATTEMPT_MS = 2 * LONGEST_PAUSE_MS;

/** Calls that have not ended, and the bytes of their requests. */
export const MAX_CALLS = 8192;
export const MAX_REQUEST_BYTES = 33_554_432;
/** Bytes of the responses of all calls that are being read. */
export const MAX_RESPONSE_BYTES = 33_554_432;
/** Maximum number of connections that the server has announced to close and that still have running calls. */
export const MAX_LEAVING = 8;

/** A call of the backend, with one request message. */
export interface BackendCall {
  readonly path: string;
  readonly message: Buffer;
  readonly metadata: Metadata | undefined;
  /** Deadline of the call, by steadyNow. */
  readonly deadline: number;
  /** Ends the call early. */
  readonly signal: CancelSignal | undefined;
}

/**
 * Makes unary calls to a gRPC server on a unix socket, on one connection. It connects for the first call, or by
 * {@link keepConnected}.
 */
export class Channel {
  readonly #memory = new ResponseMemory(MAX_RESPONSE_BYTES);
  /** Calls that wait for a connection, or for their turn on it. */
  readonly #queue = new Set<Call>();
  readonly #deadlines = new Deadlines<Call>((call) => this.#expired(call));
  #requestBytes = 0;
  #current: Connection | undefined;
  #isReady = false;
  readonly #leaving = new Set<Connection>();
  /** Reason of the last failed attempt to connect. Undefined after a successful one. */
  #lastError: string | undefined;
  #pauseMs = FIRST_PAUSE_MS;
  #attemptedAt = -Infinity;
  #retry: NodeJS.Timeout | undefined;
  #staysConnected = false;
  #isClosed = false;
  readonly #events: ConnectionEvents = {
    ready: () => this.#ready(),
    available: () => this.#startCalls(),
    leaving: (connection) => this.#leave(connection),
    unprocessed: (call) => this.#enqueue(call),
    closed: (connection, reason) => this.#closed(connection, reason),
  };

  /**
   * @param path of the unix socket
   * @param longestMessage in bytes, of requests and responses
   * @param connected called at every new connection
   */
  constructor(
    private readonly path: string,
    private readonly longestMessage: number,
    private readonly connected: () => void,
  ) {}

  /** Whether there is a connection now. */
  get isConnected(): boolean {
    return this.#isReady;
  }

  /** Calls that have not ended. */
  get calls(): number {
    return this.#deadlines.size;
  }

  /** Connects, and stays connected: a restart of the server is noticed without a call. */
  keepConnected(): void {
    this.#staysConnected = true;
    this.#connect();
  }

  /** Makes a call. Rejects with a ServiceError: code, details and trailers as the server sent them. */
  call(request: BackendCall): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      const { path, message, metadata, deadline, signal } = request;
      const ended = (outcome: Outcome, response: Buffer | undefined): void => {
        this.#deadlines.delete(call);
        this.#queue.delete(call);
        this.#requestBytes -= message.length;
        signal?.removeEventListener('abort', cancel);
        if (this.#isClosed) this.#deadlines.trim();
        if (outcome.code === Code.OK && response !== undefined) resolve(response);
        else reject(failure(outcome));
      };
      const call = new Call(path, message, metadata, deadline, steadyNow(), ended);
      const cancel = (): void => this.#end(call, CANCELLED);
      const refusal = this.#refusalOf(request, call.start);
      if (refusal !== undefined) {
        reject(failure({ ...refusal, isUnsent: true }));
        return;
      }
      this.#requestBytes += message.length;
      signal?.addEventListener('abort', cancel, { once: true });
      this.#enqueue(call);
    });
  }

  /** Makes no further calls. Running calls continue; waiting calls end. */
  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#retry);
    for (const call of this.#queue) this.#end(call, STOPPING);
    this.#current?.leave();
    this.#deadlines.trim();
  }

  #refusalOf({ message, deadline, signal }: BackendCall, now: number): Outcome | undefined {
    if (this.#isClosed) return STOPPING;
    if (signal?.aborted === true) return CANCELLED;
    if (deadline <= now) return { code: Code.DEADLINE_EXCEEDED, details: 'Deadline exceeded after 0.000s' };
    if (message.length > this.longestMessage) {
      const details = `Attempted to send message with a size larger than ${this.longestMessage}`;
      return { code: Code.RESOURCE_EXHAUSTED, details };
    }
    if (this.calls < MAX_CALLS && this.#requestBytes + message.length <= MAX_REQUEST_BYTES) return undefined;
    // Another code would count as an answer of the server.
    return { code: Code.UNAVAILABLE, details: 'too many calls to the backend at the same time' };
  }

  #enqueue(call: Call): void {
    if (this.#isClosed) {
      call.ended(REFUSED, undefined);
      return;
    }
    if (this.#current?.isAvailable === true && this.#queue.size === 0) {
      this.#deadlines.add(call);
      this.#current.start(call);
      return;
    }
    if (this.#lastError !== undefined) call.connectBy = steadyNow() + NEXT_ATTEMPT_MS;
    this.#queue.add(call);
    this.#deadlines.add(call);
    this.#connect();
  }

  #startCalls(): void {
    for (const call of this.#queue) {
      if (this.#current?.isAvailable !== true) return;
      this.#queue.delete(call);
      this.#current.start(call);
    }
  }

  #expired(call: Call): void {
    const now = steadyNow();
    if (call.deadline > now) {
      call.ended(this.#unconnected(), undefined);
      return;
    }
    this.#end(call, call.expired(now));
  }

  #end(call: Call, outcome: Outcome): void {
    const isUnsent = call.runner === undefined;
    call.runner?.cancel(call);
    call.ended({ ...outcome, isUnsent }, undefined);
  }

  /** Connects, unless there is a connection. Waits first if the last attempt was recent. */
  #connect(): void {
    if (this.#isClosed || this.#current !== undefined || this.#retry !== undefined) return;
    const pause = this.#attemptedAt + this.#pauseMs - steadyNow();
    if (pause <= 0) {
      this.#attempt();
      return;
    }
    this.#retry = setTimeout(() => {
      this.#retry = undefined;
      this.#attempt();
    }, Math.ceil(pause));
  }

  #attempt(): void {
    this.#attemptedAt = steadyNow();
    const limits = { memory: this.#memory, longestMessage: this.longestMessage };
    this.#current = new Connection(this.path, limits, this.#events);
  }

  #ready(): void {
    this.#lastError = undefined;
    this.#pauseMs = FIRST_PAUSE_MS;
    this.#isReady = true;
    // Calls beyond the server's limit wait for their turn, until their deadlines.
    for (const call of this.#queue) call.connectBy = Infinity;
    this.connected();
    this.#startCalls();
  }

  /** Handles a connection that takes no further calls. */
  #leave(connection: Connection): void {
    if (connection !== this.#current) return;
    this.#current = undefined;
    this.#isReady = false;
    this.#leaving.add(connection);
    const [oldest] = this.#leaving;
    if (this.#leaving.size > MAX_LEAVING) oldest?.destroy();
    this.#reconnect();
  }

  #closed(connection: Connection, reason: string): void {
    if (this.#leaving.delete(connection) || connection !== this.#current) return;
    this.#current = undefined;
    const wasReady = this.#isReady;
    this.#isReady = false;
    if (!wasReady) this.#failed(reason);
    this.#reconnect();
  }

  /** An attempt to connect has failed. Calls that have waited for its outcome end. */
  #failed(reason: string): void {
    if (this.#lastError !== undefined) this.#pauseMs = LONGEST_PAUSE_MS;
    this.#lastError = reason;
    for (const call of this.#queue) if (call.connectBy === Infinity) call.ended(this.#unconnected(), undefined);
  }

  /** Connects again if needed. After a failed attempt, tries until there is a connection. */
  #reconnect(): void {
    if (this.#staysConnected || this.#queue.size > 0 || this.#lastError !== undefined) this.#connect();
  }

  #unconnected(): Outcome {
    const details = `No connection established. Last error: ${this.#lastError}`;
    return { code: Code.UNAVAILABLE, details, isUnsent: true };
  }
}

const CANCELLED: Outcome = { code: Code.CANCELLED, details: 'Cancelled on client' };
/** How a call ends that is made after the client was closed. */
const STOPPING: Outcome = { code: Code.UNAVAILABLE, details: 'the shim stops' };

/**
 * The deadlines of all calls, with one timer. It is set when the new deadline is the earliest one, and not reset when a
 * deadline is removed, so that most calls set no timer.
 */
export class Deadlines<Item extends { readonly due: number }> {
  readonly #items = new Set<Item>();
  #timer: NodeJS.Timeout | undefined;
  /** When the timer fires, by steadyNow. */
  #at = Infinity;

  /** @param expired called with an item that is due, which has been removed */
  constructor(private readonly expired: (item: Item) => void) {}

  get size(): number {
    return this.#items.size;
  }

  /** Adds an item, or notes that it is due earlier than before. */
  add(item: Item): void {
    this.#items.add(item);
    if (item.due < this.#at) this.#set(item.due);
  }

  delete(item: Item): void {
    this.#items.delete(item);
  }

  /** Removes the timer if there are no items. */
  trim(): void {
    if (this.#items.size > 0) return;
    clearTimeout(this.#timer);
    this.#at = Infinity;
  }

  #set(due: number): void {
    clearTimeout(this.#timer);
    this.#at = due;
    const ms = Math.min(Math.max(0, Math.ceil(due - steadyNow())), LONGEST_TIMER_MS);
    // Items do not keep the process alive: the connections that they wait for do.
    this.#timer = setTimeout(() => this.#fire(), ms).unref();
  }

  #fire(): void {
    const now = steadyNow();
    this.#at = Infinity;
    let next = Infinity;
    for (const item of this.#items) {
      if (item.due <= now) {
        this.#items.delete(item);
        this.expired(item);
      } else {
        next = Math.min(next, item.due);
      }
    }
    if (next < this.#at) this.#set(next);
  }
}
