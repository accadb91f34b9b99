import { errnoOf } from '../errors/index.ts';
import { collectAll } from './collect.ts';

const MIB = 1_048_576;
/** Milliseconds between two looks at the resident memory. */
export const CHECK_MS = 10_000;
/** Bytes of resident memory above the least known from which memory is released. */
export const MARGIN = 16 * MIB;

/** What {@link MemoryRelease} reads and does. */
export interface MemoryParts {
  /** Returns the resident memory, in bytes. */
  readonly rss: () => number;
  /** Collects all garbage. */
  readonly collect: () => void;
  /** Returns free memory of the allocator to the kernel. */
  readonly trim: () => void;
}

/**
 * Returns the memory that a burst of clients has taken, once the burst is over. By itself, V8 collects nothing in an idle process, and
 * glibc keeps free memory between pieces that are in use. Takes about 6 ms of processor time, once after a burst.
 */
export class MemoryRelease {
  #least = Infinity;
  #last = -1;
  #isCollected = false;
  readonly #parts: MemoryParts;

  constructor(parts: MemoryParts) {
    this.#parts = parts;
  }

  /** To be called regularly. Collects when memory does not grow any more, and trims at the next call. */
  check(): void {
    if (this.#isCollected) {
      this.#isCollected = false;
      this.#parts.trim();
      this.#least = this.#last = this.#parts.rss();
      return;
    }
    const rss = this.#parts.rss();
    const grows = rss > this.#last;
    this.#last = rss;
    this.#least = Math.min(this.#least, rss);
    if (grows || rss < this.#least + MARGIN) return;
    this.#parts.collect();
    this.#isCollected = true;
  }
}

/** Releases memory from now on. Does nothing where malloc_trim(3) is missing: without koffi, or with a libc other than glibc. */
export async function releaseMemory(): Promise<void> {
  let trim: (pad: number) => number;
  try {
    const { default: koffi } = await import('koffi');
    trim = koffi.load(null).func('int malloc_trim(size_t pad)') as (pad: number) => number;
  } catch {
    return;
  }
  const release = new MemoryRelease({
    rss: () => process.memoryUsage.rss(),
    collect: collectAll,
    trim: () => void trim(0),
  });
  // Reading the resident memory needs a descriptor: without one, this look is left out.
  const look = (): void => {
    try {
      release.check();
    } catch (error) {
      if (!['EMFILE', 'ENFILE'].includes(errnoOf(error) ?? '')) throw error;
    }
  };
  // What the process needs without clients.
  look();
  setInterval(look, CHECK_MS).unref();
}
