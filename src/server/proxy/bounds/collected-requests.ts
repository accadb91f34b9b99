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
export class CollectedRequests {
  readonly #requests = new Set<CollectedRequest>();
  #blocks = 0;
  #free: Buffer[] = [];
  #trim: NodeJS.Timeout | undefined;
  readonly #limit: number;

  /** @param limit bytes of all requests */
  constructor(limit: number) {
    this.#limit = limit;
  }

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
    while (this.total > this.#limit) {
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
