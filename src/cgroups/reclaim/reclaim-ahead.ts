/** Freeing what a cgroup can do without, for a limit that somebody else is about to lower. */
import { bytes } from '../../core/quantities/index.ts';
import type { Bytes } from '../../core/quantities/index.ts';
import type { CgroupTree, Reclaimed } from '../tree.ts';
import type { CgroupPath } from '../file.ts';
import { FIRST_CHUNK, nextChunk } from './pace.ts';
import { LEAST_AMOUNT, reclaiming } from './reclaim-slots.ts';

/** What it takes of a cgroup tree. */
export type AheadTree = Pick<CgroupTree, 'readMemoryCurrent' | 'reclaim'>;

/** What one step has come to. */
export interface StepAhead {
  readonly got: Reclaimed;
  /** What the kernel has freed, in bytes: what was asked for, or what is less in use afterwards. */
  readonly freed: Bytes;
  /** What is in use afterwards, in bytes. */
  readonly after: Bytes;
  /** How long it took, in milliseconds. */
  readonly ms: number;
}

/** What is written at once at most: steps stay short also where the kernel is fast. In bytes. */
const MOST_AT_ONCE = 64 * 1024 * 1024;

/**
 * Steps of reclaim towards `goal`, by memory.reclaim alone: neither memory.max nor memory.high is touched, so nothing is to be put
 * back, and whoever needs more memory meanwhile gets it. It is for the caller to say when, and how many.
 */
export class ReclaimAhead {
  #chunk = FIRST_CHUNK;
  readonly #tree: AheadTree;
  readonly #cgroup: CgroupPath;
  readonly #goal: Bytes;

  constructor(tree: AheadTree, cgroup: CgroupPath, goal: Bytes) {
    this.#tree = tree;
    this.#cgroup = cgroup;
    this.#goal = goal;
  }

  /**
   * One write, never for more than what is in use above the goal; undefined when nothing is. Kernels before 5.19 have no
   * memory.reclaim (`unsupported`). Throws as reading and writing do, CgroupVanished among them, and the signal's reason.
   */
  async step(signal: AbortSignal): Promise<StepAhead | undefined> {
    const current = this.#tree.readMemoryCurrent(this.#cgroup);
    if (current <= this.#goal) return undefined;
    const amount = bytes(Math.min(this.#chunk, MOST_AT_ONCE, Math.max(current - this.#goal, LEAST_AMOUNT)));
    let ms = 0;
    const got = await reclaiming.run(async () => {
      const start = performance.now();
      const reclaimed = await this.#tree.reclaim(this.#cgroup, amount);
      ms = performance.now() - start;
      return reclaimed;
    }, signal);
    this.#chunk = nextChunk(this.#chunk, ms);
    const after = this.#tree.readMemoryCurrent(this.#cgroup);
    return { got, freed: got === 'all' ? amount : bytes(Math.max(0, current - after)), after, ms };
  }
}
