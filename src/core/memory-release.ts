/** Returns memory that only the start, a burst or a few calls have needed to the kernel. */
import { readFile } from 'node:fs/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { errnoOf } from './errors.ts';
import { MiB } from './quantities/sizes.ts';

/** Interval between checks of the resident memory, in milliseconds. */
export const CHECK_MS = 5_000;
/** Memory is released when the resident memory exceeds the lowest known value by this many bytes. */
export const MARGIN = 16 * MiB;
/** Growth of the resident memory between two checks, in bytes, that does not count as a burst. */
const NOISE = MiB;
/**
 * After this many checks in a row without growth, a smaller margin applies: what was used is not in use any more. Each
 * time doubles the number, up to the highest one (an hour): calls that need the memory again and again keep it.
 */
export const SETTLED_CHECKS = 6;
export const MOST_SETTLED_CHECKS = 720;
export const SETTLED_MARGIN = 4 * MiB;

/** The system interface of {@link MemoryRelease}. */
export interface MemoryOptions {
  /** Returns the resident memory, in bytes. */
  readonly rss: () => number;
  /** Collects all garbage. */
  readonly collect: () => void;
  /** Collects all garbage, and compiled code: most has only run at the start, or for a few calls. */
  readonly collectCode: () => void;
  /** Returns free memory of the allocator to the kernel. */
  readonly trim: () => void;
  /** Unmaps pages of the program's file, most of which only the start or a few calls have used. */
  readonly unmap: () => void;
}

/**
 * Returns memory to the kernel after the start, after bursts of calls, and after a while without growth. By itself, V8
 * collects nothing in an idle process, and glibc keeps free memory between pieces in use. Calls wait during a
 * collection; there is one after the start, one after each burst, and, ever more rarely, one when the memory has grown
 * by {@link SETTLED_MARGIN} and stays there.
 */
export class MemoryRelease {
  /** The lowest resident memory since the last collection. Undefined until the memory of the start is released. */
  #least: number | undefined;
  /** The resident memory after the last collection of code. */
  #settled = 0;
  #last = -1;
  /** Checks in a row without growth. */
  #quiet = 0;
  /** The number of them from which {@link SETTLED_MARGIN} applies. */
  #settledChecks = SETTLED_CHECKS;
  #collected: 'garbage' | 'code' | undefined;
  #isUnmapped = false;

  constructor(private readonly options: MemoryOptions) {}

  /** Checks the memory; call it regularly. Collects when memory no longer grows, and trims at the next call. */
  check(): void {
    if (this.#collected !== undefined) {
      this.options.trim();
      this.#isUnmapped = this.#collected === 'code';
      if (this.#isUnmapped) {
        this.options.unmap();
        this.#quiet = 0;
      }
      this.#collected = undefined;
      this.#least = this.#last = this.options.rss();
      return;
    }
    const rss = this.options.rss();
    // By now, pages in use are mapped again: the lowest value includes them.
    if (this.#isUnmapped) this.#least = this.#last = this.#settled = rss;
    this.#isUnmapped = false;
    this.#quiet = rss > this.#last + NOISE ? 0 : this.#quiet + 1;
    this.#last = rss;
    if (this.#least !== undefined) this.#least = Math.min(this.#least, rss);
    this.#collected = this.#due(rss);
    if (this.#collected === undefined) return;
    if (this.#collected === 'code') this.options.collectCode();
    else this.options.collect();
  }

  /** Returns what is to be collected now. */
  #due(rss: number): 'garbage' | 'code' | undefined {
    if (this.#quiet === 0) return undefined;
    const least = this.#least;
    if (least === undefined) return 'code';
    if (this.#quiet >= this.#settledChecks && rss >= this.#settled + SETTLED_MARGIN) {
      this.#settledChecks = Math.min(2 * this.#settledChecks, MOST_SETTLED_CHECKS);
      return 'code';
    }
    return rss >= least + MARGIN ? 'garbage' : undefined;
  }
}

/** Releases memory from now on. Does nothing without malloc_trim(3): no koffi, or a libc other than glibc. */
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
    // Before the collection, which also collects the text of the file. Without it, such as for lack of descriptors, the
    // pages stay mapped.
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
  // Reading the resident memory needs a descriptor: a check without one is skipped.
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

/** A range of addresses. */
interface Mapping {
  readonly start: number;
  readonly length: number;
}

/** From linux/mman.h. */
const MADV_DONTNEED = 4;

/** madvise(2). */
export type Madvise = (start: number, length: number, advice: number) => number;

/** Finds the mappings of Node's program. Reads in a worker thread: the kernel looks at each page for the file. */
export const programMappings = async (): Promise<readonly Mapping[]> =>
  unchangedMappings(await readFile('/proc/self/smaps', 'utf8'), process.execPath);

/**
 * Unmaps all pages of these mappings. They stay in the page cache and are mapped again on use, so the resident memory
 * contains only pages in use. The start touches twice as many pages of Node's program as are needed later. Takes 2 ms.
 */
export function unmap(mappings: readonly Mapping[], madvise: Madvise): void {
  for (const { start, length } of mappings) madvise(start, length, MADV_DONTNEED);
}

/**
 * Returns the read-only mappings of a file, in proc_pid_smaps(5), whose pages are all unchanged, in memory and in swap.
 * Unmapping any other mapping would lose changes, such as the dynamic loader's relocations, which are read-only after
 * the start. Linkers put relocations behind the code, so only code is returned from there on.
 */
export function unchangedMappings(smaps: string, file: string): readonly Mapping[] {
  let isBehindCode = false;
  return smaps.split(/^(?=[0-9a-f]+-[0-9a-f]+ )/m).flatMap((entry): Mapping[] => {
    const [, start, end, mode, path] = /^([0-9a-f]+)-([0-9a-f]+) r-([-x])p \S+ \S+ \d+ +(.*)$/m.exec(entry) ?? [];
    if (start === undefined || end === undefined || path !== file) return [];
    const isCode = mode === 'x';
    isBehindCode ||= isCode;
    const isUnchanged = /^Anonymous: +0 kB$/m.test(entry) && /^Swap: +0 kB$/m.test(entry);
    if (!isUnchanged || (isBehindCode && !isCode)) return [];
    return [{ start: Number.parseInt(start, 16), length: Number.parseInt(end, 16) - Number.parseInt(start, 16) }];
  });
}

interface Options {
  readonly type: 'minor' | 'major';
  /** `last-resort` also returns to the kernel the pages that V8 otherwise keeps for new objects. */
  readonly flavor?: 'last-resort';
}
type Collect = (options: Options) => void;

const EVERYTHING: Options = { type: 'major', flavor: 'last-resort' };

let collect: Collect | undefined;

/** Returns V8's `gc`, which only contexts that are made later have. */
function exposedCollect(): Collect {
  setFlagsFromString('--expose-gc');
  return runInNewContext('gc') as Collect;
}

/** Collects the young generation, which takes about 1 ms. */
function collectYoung(): void {
  collect ??= exposedCollect();
  collect({ type: 'minor' });
}

/** Collects all garbage. */
function collectAll(): void {
  collect ??= exposedCollect();
  collect({ type: 'major' });
}

/**
 * Collects all garbage in several collections, returns free pages to the kernel, and discards the compiled code of all
 * functions that are not running: V8 compiles them again when they are called. By default V8 discards only code that
 * did not run during six collections.
 */
function collectCode(): void {
  setFlagsFromString('--bytecode-old-age=1');
  setFlagsFromString('--flush-baseline-code');
  collect ??= exposedCollect();
  collect(EVERYTHING);
  // V8's defaults.
  setFlagsFromString('--no-flush-baseline-code');
  setFlagsFromString('--bytecode-old-age=6');
}

/** Bytes of short-lived buffers after which they are collected. */
const COLLECT_AFTER = 8 * MiB;

let used = 0;

/**
 * Counts the bytes of a new short-lived buffer. V8 treats a buffer of any size as a small object, and by itself
 * collects such buffers at 64 MB. Collecting the young generation takes about 1 ms; a busy kubelet causes one
 * collection in several minutes.
 */
export function bufferUsed(bytes: number): void {
  used += bytes;
  if (used < COLLECT_AFTER) return;
  used = 0;
  collectYoung();
}
