/** Reclaims memory of a cgroup for a limit that kubelet is about to lower. */
import { bytes } from '../../core/quantities/index.ts';
import type { Bytes } from '../../core/quantities/index.ts';
import type { CgroupTree, Reclaimed } from '../tree.ts';
import type { CgroupPath } from '../file.ts';
import { FIRST_CHUNK, nextChunk } from './pace.ts';
import { LEAST_AMOUNT, reclaiming } from './reclaim-slots.ts';

/** The methods that {@link ReclaimAhead} needs. */
export type AheadTree = Pick<CgroupTree, 'readMemoryCurrent' | 'reclaim'>;

/** The result of a step. */
export interface StepAhead {
  readonly got: Reclaimed;
  /** Bytes that the kernel has freed: the requested amount, or the decrease in usage if it freed less. */
  readonly freed: Bytes;
  /** Usage afterwards, in bytes. */
  readonly after: Bytes;
  /** Duration in milliseconds. */
  readonly ms: number;
}

/** Maximum bytes per write, so that steps stay short even if the kernel is fast. */
const MOST_AT_ONCE = 64 * 1024 * 1024;

/**
 * Reclaims in steps until usage is at `goal`. Uses only memory.reclaim and changes neither memory.max nor memory.high: nothing needs to
 * be restored, and processes can still allocate. The caller decides when to run a step, and how many.
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
   * Writes memory.reclaim once, for at most the usage above the goal. Returns undefined if usage is at the goal. Kernels before 5.19
   * do not have memory.reclaim (`unsupported`). Throws the errors of reading and writing, such as CgroupVanished, and the
   * signal's reason.
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
