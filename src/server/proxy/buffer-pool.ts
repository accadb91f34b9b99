/** Block size in bytes; fits several default-size frames. */
const BLOCK_SIZE = 65_536;
/** Empty blocks that the pool keeps. */
const MAX_FREE_BLOCKS = 4;

const NOTHING = Buffer.alloc(0);

/** Memory for copies. */
export interface PoolBlock {
  readonly memory: Buffer;
  /** Bytes taken from the start. */
  used: number;
  /** Copies in it that have not been sent. */
  copies: number;
}

/** Copied bytes and their place. */
export interface Copy {
  readonly bytes: Buffer;
  readonly spare: Buffer;
  readonly block: PoolBlock | undefined;
}

/**
 * Holds copies of data that waits, in blocks of memory that are reused. One buffer for each copy would be collected
 * late: while a client reads a long list window by window, such buffers would be most of the process's memory.
 */
export class BufferPool {
  readonly #free: PoolBlock[] = [];
  /** Blocks whose copies have all been handed on. The transport may still use their memory. */
  #drained: PoolBlock[] = [];
  #current: PoolBlock | undefined;

  /**
   * Copies bytes. Returns the copy and its block, which is undefined for a copy too large to share one.
   * @param smallest minimum size to reserve in a block, in bytes; the unused rest follows the copy as `spare`
   */
  copy(bytes: Buffer, smallest: number): Copy {
    if (bytes.length === 0 || bytes.length > BLOCK_SIZE / 2)
      return { bytes: Buffer.from(bytes), spare: NOTHING, block: undefined };
    const size = Math.max(bytes.length, smallest);
    let block = this.#current;
    if (block === undefined || block.used + size > BLOCK_SIZE) {
      block = this.#free.pop() ?? { memory: Buffer.allocUnsafeSlow(BLOCK_SIZE), used: 0, copies: 0 };
      this.#current = block;
    }
    const from = block.used;
    bytes.copy(block.memory, from);
    block.used += size;
    block.copies += 1;
    const end = from + bytes.length;
    return { bytes: block.memory.subarray(from, end), spare: block.memory.subarray(end, block.used), block };
  }

  /** Records that one copy in the block has been handed on or dropped. */
  release(block: PoolBlock): void {
    block.copies -= 1;
    if (block.copies > 0) return;
    if (block === this.#current) this.#current = undefined;
    if (this.#drained.length < MAX_FREE_BLOCKS) this.#drained.push(block);
  }

  /** Makes drained blocks available again. Call it when the transports hold no bytes any more. */
  recycle(): void {
    if (this.#drained.length === 0) return;
    for (const block of this.#drained) {
      if (this.#free.length >= MAX_FREE_BLOCKS) break;
      block.used = 0;
      this.#free.push(block);
    }
    this.#drained = [];
  }
}
