import { CallStarts } from './call-starts.ts';
import { Turns } from './turns.ts';

/** Limits of what all connections use together. Sizes in bytes. */
export interface SharedLimits {
  /** Copied requests and held responses. */
  readonly held: HeldLimits;
  /** Data that waits for clients. Beyond it, no connection reads ahead. */
  readonly queued: number;
  /** Connections that are closed and whose peers are not. */
  readonly lingering: number;
  readonly streams: StreamLimits;
  /** Calls that the local server handles. */
  readonly calls: CallLimits;
  /** Requests for the local server that wait for their last frame. */
  readonly requests: number;
}

/** What all connections of the proxy use together. */
export class SharedBudget {
  readonly held: AllHeldBytes;
  readonly queued: QueuedBytes;
  readonly lingering: Lingering;
  readonly streams: OpenStreams;
  readonly calls: RunningCalls;
  readonly requests: CollectedRequests;
  readonly turns = new Turns();
  readonly starts = new CallStarts();

  constructor(limits: SharedLimits) {
    this.held = new AllHeldBytes(limits.held);
    this.queued = new QueuedBytes(limits.queued);
    this.lingering = new Lingering(limits.lingering);
    this.streams = new OpenStreams(limits.streams);
    this.calls = new RunningCalls(limits.calls);
    this.requests = new CollectedRequests(limits.requests);
  }
}

/** Limits of the bytes that are held. */
interface HeldLimits {
  /** Bytes that each connection may hold, regardless of the others. */
  readonly reserved: number;
  /** Bytes of all connections beyond those. */
  readonly all: number;
}

/** The bytes of requests and responses that all connections hold for amendments. */
class AllHeldBytes {
  #total = 0;
  #shared = 0;

  constructor(private readonly limits: HeldLimits) {}

  get total(): number {
    return this.#total;
  }

  get isFull(): boolean {
    return this.#shared > this.limits.all;
  }

  /**
   * Whether a connection may hold this many further bytes. Beyond the reserved ones, a connection holds no more than it leaves to the
   * others: one client gets half of what all may hold, and those that do not read leave room for those that do.
   * @param held bytes that the connection holds
   */
  admits(held: number, bytes: number): boolean {
    const after = this.#beyond(held + bytes);
    return after === 0 || after <= this.limits.all - (this.#shared - this.#beyond(held) + after);
  }

  /** @param held bytes of a connection, which has held `before` until now */
  changed(held: number, before: number): void {
    this.#total += held - before;
    this.#shared += this.#beyond(held) - this.#beyond(before);
  }

  #beyond(held: number): number {
    return Math.max(0, held - this.limits.reserved);
  }
}

/**
 * The bytes of requests and responses that one connection holds for amendments. What waits for the client beyond its own limits counts
 * too: a response that was held leaves at once, and the client may read it late.
 */
export class HeldBytes {
  #total = 0;
  /** Of these, bytes that wait for the client. */
  #waiting = 0;

  constructor(private readonly all: AllHeldBytes) {}

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
    return !this.all.admits(this.#total, bytes);
  }
}

/** Limits of the calls that the local server handles, of all connections. */
interface CallLimits {
  /** Calls that each connection may have, regardless of the others. */
  readonly reserved: number;
  /** Calls of all connections beyond those. */
  readonly all: number;
  /** Calls whose messages are compressed: each costs far more memory and time than its bytes. */
  readonly compressed: number;
}

/** The calls of one connection that have a place. */
export interface OwnCalls {
  all: number;
  compressed: number;
}

/** The number of calls of all connections that the local server handles. */
export class RunningCalls {
  #all = 0;
  #compressed = 0;

  constructor(private readonly limits: CallLimits) {}

  /** Calls beyond the reserved ones. */
  get count(): number {
    return this.#all;
  }

  /** Calls whose messages are compressed. */
  get compressed(): number {
    return this.#compressed;
  }

  /**
   * Takes a place. Returns whether there was one. A connection has no more compressed calls than it leaves places to the others: half of
   * the places if it is the first, a quarter if it is the second, and so on.
   * @param own calls of the connection
   */
  take(own: OwnCalls, compressed: boolean): boolean {
    const isReserved = own.all < this.limits.reserved;
    if (!isReserved && this.#all >= this.limits.all) return false;
    if (compressed && own.compressed >= this.limits.compressed - this.#compressed) return false;
    if (!isReserved) this.#all += 1;
    if (compressed) this.#compressed += 1;
    own.all += 1;
    if (compressed) own.compressed += 1;
    return true;
  }

  /** @param own calls of the connection, with the one that has ended */
  release(own: OwnCalls, compressed: boolean): void {
    own.all -= 1;
    if (own.all >= this.limits.reserved) this.#all -= 1;
    if (!compressed) return;
    own.compressed -= 1;
    this.#compressed -= 1;
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
 * The requests of all connections that wait for their last frames. They are held in blocks of memory that are reused: one buffer for
 * each frame would be collected late, and such buffers would be most of the process's memory.
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
   * Adds bytes to a request. Beyond the limit, refuses the largest request of all: a client that finishes no request does not lock out
   * the others, whose requests are small.
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

interface StreamLimits {
  /** Streams that each connection may have open, regardless of the others. */
  readonly reserved: number;
  /** Streams of all connections beyond those. */
  readonly shared: number;
}

/** The number of open streams of all connections. */
class OpenStreams {
  #shared = 0;

  constructor(private readonly limits: StreamLimits) {}

  /** Streams beyond the reserved ones. */
  get shared(): number {
    return this.#shared;
  }

  /** Whether a connection with this many open streams may open another. */
  admits(open: number): boolean {
    return open < this.limits.reserved || this.#shared < this.limits.shared;
  }

  /** @param open streams of the connection, with the new one */
  opened(open: number): void {
    if (open > this.limits.reserved) this.#shared += 1;
  }

  /** @param open streams of the connection, without the one that has ended */
  closed(open: number): void {
    if (open >= this.limits.reserved) this.#shared -= 1;
  }
}

/** The bytes of all connections that wait for clients. */
export class QueuedBytes {
  #total = 0;

  constructor(private readonly limit: number) {}

  get total(): number {
    return this.#total;
  }

  /** @param bytes negative for bytes that no longer wait */
  add(bytes: number): void {
    this.#total += bytes;
  }

  get isFull(): boolean {
    return this.#total > this.limit;
  }
}

/** A connection that is closed and whose peer is not. */
export interface ClosedConnection {
  /** Bytes for the client that the kernel has not taken. */
  readonly unsent: number;
  /** Closes the sockets at once. Has to call {@link Lingering.delete}. */
  destroy(): void;
}

/** The connections that are closed and wait for their peers to close too. They still hold their buffers, so their number is limited. */
class Lingering {
  readonly #connections = new Set<ClosedConnection>();

  constructor(private readonly limit: number) {}

  get count(): number {
    return this.#connections.size;
  }

  /**
   * Adds a connection. If there are too many, destroys the one that has waited longest of those that have sent everything, or
   * of all if none has. Returns whether it did.
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
