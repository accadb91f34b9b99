import { MiB } from '../quantities/index.ts';
import { errnoOf } from '../errors/index.ts';
import { collectAll, collectCode } from './collect.ts';
import { type Madvise, type Mapping, programMappings, unmap } from './file-pages.ts';

/** Milliseconds between two looks at the resident memory. */
export const CHECK_MS = 5_000;
/** Bytes of resident memory above the least known from which memory is released. */
export const MARGIN = 16 * MiB;
/** Bytes that resident memory grows by between two looks although no burst goes on. */
const NOISE = MiB;

/** What {@link MemoryRelease} reads and does. */
export interface MemoryParts {
  /** Returns the resident memory, in bytes. */
  readonly rss: () => number;
  /** Collects all garbage. */
  readonly collect: () => void;
  /** Collects all garbage, and compiled code: most has only run at the start. */
  readonly collectCode: () => void;
  /** Returns free memory of the allocator to the kernel. */
  readonly trim: () => void;
  /** Unmaps pages of the program's file, most of which only the start has used. */
  readonly unmap: () => void;
}

/**
 * Returns the memory that the start or a burst of clients has taken, once it is over. By itself, V8 collects nothing in an idle process,
 * and glibc keeps free memory between pieces that are in use. Calls wait during a collection, of which there
 * is one after the start, and one after each burst.
 */
export class MemoryRelease {
  /** The least memory since the start was released. */
  #least: number | undefined;
  #last = -1;
  #isCollected = false;
  #isUnmapped = false;
  readonly #parts: MemoryParts;

  constructor(parts: MemoryParts) {
    this.#parts = parts;
  }

  /** To be called regularly. Collects when memory does not grow any more, and trims at the next call. */
  check(): void {
    if (this.#isCollected) {
      this.#isCollected = false;
      this.#parts.trim();
      const isFirst = this.#least === undefined;
      if (isFirst) this.#parts.unmap();
      this.#least = this.#last = this.#parts.rss();
      this.#isUnmapped = isFirst;
      return;
    }
    const rss = this.#parts.rss();
    // Pages that are in use are mapped again by now: the least is with them.
    if (this.#isUnmapped) this.#least = this.#last = rss;
    this.#isUnmapped = false;
    const grows = rss > this.#last + NOISE;
    this.#last = rss;
    if (this.#least !== undefined) this.#least = Math.min(this.#least, rss);
    if (grows || rss < (this.#least ?? 0) + MARGIN) return;
    if (this.#least === undefined) this.#parts.collectCode();
    else this.#parts.collect();
    this.#isCollected = true;
  }
}

/** Releases memory from now on. Does nothing where malloc_trim(3) is missing: without koffi, or with a libc other than glibc. */
export async function releaseMemory(): Promise<void> {
  let trim: (pad: number) => number;
  let madvise: Madvise;
  try {
    const { default: koffi } = await import('koffi');
    const libc = koffi.load(null);
    trim = libc.func('int malloc_trim(size_t pad)') as (pad: number) => number;
    madvise = libc.func('int madvise(uintptr_t start, size_t length, int advice)') as Madvise;
  } catch {
    return;
  }
  let mappings: readonly Mapping[] = [];
  const collectStart = async (): Promise<void> => {
    // Before the collection, which also collects the text. Without it, such as for lack of descriptors, the pages stay mapped.
    mappings = await programMappings().catch(() => []);
    collectCode();
  };
  const release = new MemoryRelease({
    rss: () => process.memoryUsage.rss(),
    collect: collectAll,
    collectCode: () => void collectStart(),
    trim: () => void trim(0),
    unmap: () => unmap(mappings, madvise),
  });
  // Reading the resident memory needs a descriptor: without one, this look is left out.
  const look = (): void => {
    try {
      release.check();
    } catch (error) {
      if (!['EMFILE', 'ENFILE'].includes(errnoOf(error) ?? '')) throw error;
    }
  };
  look();
  setInterval(look, CHECK_MS).unref();
}
