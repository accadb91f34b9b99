import { CallStarts } from './call-starts.ts';
import { Turns } from './turns.ts';

/** Limits of what all connections use together. Sizes in bytes. */
export interface SharedLimits {
  /** Copied requests and held responses. */
  readonly held: ShareLimits;
  /** Data that waits for clients. Beyond it, no connection reads ahead. */
  readonly queued: number;
  /** Connections that are closed and whose peers are not. */
  readonly lingering: number;
  readonly streams: ShareLimits;
  /** Calls that the local server handles. */
  readonly calls: CallLimits;
  /** Requests for the local server that wait for their last frame. */
  readonly requests: number;
}

/** The resources that all connections of the proxy share. */
export class SharedBudget {
  readonly held: Shares;
  readonly queued: Shares;
  readonly lingering: Lingering;
  readonly streams: Shares;
  readonly calls: RunningCalls;
  readonly requests: CollectedRequests;
  readonly turns = new Turns();
  readonly starts = new CallStarts();

  constructor(limits: SharedLimits) {
    this.held = new Shares(limits.held);
    this.queued = new Shares({ reserved: 0, all: limits.queued });
    this.lingering = new Lingering(limits.lingering);
    this.streams = new Shares(limits.streams);
    this.calls = new RunningCalls(limits.calls);
    this.requests = new CollectedRequests(limits.requests);
  }
}

/** Limits of what connections share: bytes, streams or calls. */
interface ShareLimits {
  /** Units that each connection may use, regardless of the others. */
  readonly reserved: number;
  /** Units of all connections beyond those. */
  readonly all: number;
}

/** Counts the bytes, streams or calls of all connections. */
export class Shares {
  #total = 0;
  #beyond = 0;

  constructor(private readonly limits: ShareLimits) {}

  get total(): number {
    return this.#total;
  }

  /** Units beyond the reserved ones. */
  get beyond(): number {
    return this.#beyond;
  }

  get isFull(): boolean {
    return this.#beyond > this.limits.all;
  }

  /** @param own units of one connection, which has used `before` until now */
  changed(own: number, before: number): void {
    this.#total += own - before;
    this.#beyond += this.#beyondOf(own) - this.#beyondOf(before);
  }

  /** Whether a connection with `own` units may use `more`. */
  admits(own: number, more: number): boolean {
    return this.#leaves(own, more) >= 0;
  }

  /**
   * Whether a connection may use `more` units and leaves as many to the others as it then has. One client can use half
   * of the total, and clients that do not read leave units for those that do.
   */
  admitsFairly(own: number, more: number): boolean {
    const after = this.#beyondOf(own + more);
    return after === 0 || after <= this.#leaves(own, more);
  }

  /** Units that are left to all connections when one uses `more`; 0 if it uses reserved ones. */
  #leaves(own: number, more: number): number {
    const after = this.#beyondOf(own + more);
    return after === 0 ? 0 : this.limits.all - (this.#beyond - this.#beyondOf(own) + after);
  }

  #beyondOf(own: number): number {
    return Math.max(0, own - this.limits.reserved);
  }
}

/**
 * Counts the bytes of requests and responses that one connection holds for amendments. Bytes that wait for the client
 * beyond its own limits also count: a response that was held leaves at once, but the client may read it late.
 */
export class HeldBytes {
  #total = 0;
  /** The part of them that waits for the client. */
  #waiting = 0;

  constructor(private readonly all: Shares) {}

  get total(): number {
    return this.#total;
  }

  /** @param bytes negative for bytes that are freed */
  add(bytes: number): void {
    const before = this.#total;
    this.#total += bytes;
    this.all.changed(this.#total, before);
  }

  /** @param bytes that wait for the client now, beyond the limits of what may */
  setWaiting(bytes: number): void {
    if (bytes === this.#waiting) return;
    this.add(bytes - this.#waiting);
    this.#waiting = bytes;
  }

  /** Whether this many further bytes exceed the limits. */
  wouldExceed(bytes: number): boolean {
    return !this.all.admitsFairly(this.#total, bytes);
  }
}

/** Limits of the calls that the local server handles, of all connections. */
interface CallLimits extends ShareLimits {
  /** Calls whose messages are compressed: each costs far more memory and time than its bytes. */
  readonly compressed: number;
}

/** The calls of one connection that have a place. */
export interface OwnCalls {
  all: number;
  compressed: number;
}

/** The calls of all connections that the local server handles. */
export class RunningCalls {
  readonly all: Shares;
  readonly compressed: Shares;

  constructor(limits: CallLimits) {
    this.all = new Shares(limits);
    // Plus 1, because the last place may be taken although no place is left then.
    this.compressed = new Shares({ reserved: 0, all: limits.compressed + 1 });
  }

  /**
   * Reserves a slot for a call. Returns false if no slot is available. A connection may use a slot for compressed calls
   * only if at least as many stay free as it then uses: half of them for the first connection, a quarter for the
   * second, and so on.
   * @param own the connection's calls that have a slot
   */
  take(own: OwnCalls, compressed: boolean): boolean {
    if (!this.all.admits(own.all, 1)) return false;
    if (compressed && !this.compressed.admitsFairly(own.compressed, 1)) return false;
    this.#change(own, compressed, 1);
    return true;
  }

  /** @param own calls of the connection, with the one that has ended */
  release(own: OwnCalls, compressed: boolean): void {
    this.#change(own, compressed, -1);
  }

  #change(own: OwnCalls, compressed: boolean, by: 1 | -1): void {
    this.all.changed((own.all += by), own.all - by);
    if (compressed) this.compressed.changed((own.compressed += by), own.compressed - by);
  }
}

/** Size of a block in bytes: the default size of an HTTP/2 frame. */
const BLOCK_SIZE = 16_384;
/** How long free blocks are kept, in milliseconds. */
const FREE_MS = 5000;

/** A request for the local server that waits here for its last frame. */
export interface CollectedRequest {
  readonly blocks: Buffer[];
  /** Bytes of the request. */
  size: number;
  /** Ends its call with RESOURCE_EXHAUSTED. */
  readonly refuse: () => void;
}

/**
 * The requests of all connections that wait for their last frames. They are held in blocks of memory that are reused:
 * one buffer for each frame would be collected late, and such buffers would be most of the process's memory.
 */
class CollectedRequests {
  readonly #requests = new Set<CollectedRequest>();
  #blocks = 0;
  #free: Buffer[] = [];
  #trim: NodeJS.Timeout | undefined;

  /** @param limit bytes of all requests */
  constructor(private readonly limit: number) {}

  /** Bytes of memory that the requests occupy. */
  get total(): number {
    return this.#blocks * BLOCK_SIZE;
  }

  /**
   * Adds bytes to a request. Beyond the limit, refuses the largest request of all: a client that finishes no request
   * does not lock out the others, whose requests are small.
   */
  add(request: CollectedRequest, bytes: Buffer): void {
    this.#requests.add(request);
    for (let from = 0; from < bytes.length; ) {
      const at = request.size % BLOCK_SIZE;
      if (at === 0) request.blocks.push(this.#take());
      const copied = bytes.copy(request.blocks.at(-1) ?? bytes, at, from);
      request.size += copied;
      from += copied;
    }
    while (this.total > this.limit) {
      const largest = this.#largest(request);
      largest.refuse();
      this.drop(largest);
    }
  }

  /** Returns the bytes of a complete request. Its memory is the caller's; it counts until {@link drop}. */
  complete(request: CollectedRequest): Buffer[] {
    const parts = request.blocks.splice(0);
    const last = parts.pop();
    if (last !== undefined) parts.push(last.subarray(0, request.size - parts.length * BLOCK_SIZE));
    return parts;
  }

  /** Forgets a request. */
  drop(request: CollectedRequest): void {
    if (!this.#requests.delete(request)) return;
    this.#blocks -= Math.ceil(request.size / BLOCK_SIZE);
    this.#free.push(...request.blocks.splice(0));
    this.#trim ??= setTimeout(() => {
      this.#trim = undefined;
      this.#free = [];
    }, FREE_MS).unref();
  }

  #take(): Buffer {
    this.#blocks += 1;
    return this.#free.pop() ?? Buffer.allocUnsafeSlow(BLOCK_SIZE);
  }

  #largest(first: CollectedRequest): CollectedRequest {
    let found = first;
    for (const request of this.#requests) if (request.size > found.size) found = request;
    return found;
  }
}

/** A connection that is closed and whose peer is not. */
export interface ClosedConnection {
  /** Bytes for the client that the kernel has not taken. */
  readonly unsent: number;
  /** Closes the sockets at once. Has to call {@link Lingering.delete}. */
  destroy(): void;
}

/** Closed connections that wait for their peers to close. Their number is limited: they still hold buffers. */
class Lingering {
  readonly #connections = new Set<ClosedConnection>();

  constructor(private readonly limit: number) {}

  get count(): number {
    return this.#connections.size;
  }

  /**
   * Adds a connection. If there are too many, destroys the one that has waited longest of those that have sent
   * everything, or of all if none has. Returns whether it did.
   */
  add(connection: ClosedConnection): boolean {
    this.#connections.add(connection);
    if (this.#connections.size <= this.limit) return false;
    this.#longest()?.destroy();
    return true;
  }

  delete(connection: ClosedConnection): void {
    this.#connections.delete(connection);
  }

  #longest(): ClosedConnection | undefined {
    const all = [...this.#connections];
    return all.find(({ unsent }) => unsent === 0) ?? all[0];
  }
}
