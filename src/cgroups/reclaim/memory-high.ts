import { Code, Reason, ShimError, messageOf } from '../../core/errors/index.ts';
import type { Bytes, Limit } from '../../core/quantities/index.ts';
import type { CgroupTree } from '../tree.ts';
import { isCgroupVanished } from '../file.ts';
import type { CgroupPath } from '../file.ts';

type MemoryHighTree = Pick<CgroupTree, 'readHigh' | 'write' | 'holds'>;

/**
 * memory.high of one cgroup, lowered for a while and put back as it was. It is put back over what was written here, and
 * never over what somebody else has written meanwhile (kubelet's memory QoS, an update by the runtime).
 */
export class TemporaryMemoryHigh {
  /** What is to be put back; undefined until something was written. */
  #previous: Limit<Bytes> | undefined;
  /** Written, and being written: either may be found, as long as nobody else writes. */
  #written: Bytes | undefined;
  #pending: Bytes | undefined;
  #isOver = false;
  readonly #tree: MemoryHighTree;
  readonly #cgroup: CgroupPath;
  readonly #onChange: (previous: Limit<Bytes>) => Promise<void>;

  /** `onChange` is awaited before the file is changed, with what it holds. */
  constructor(tree: MemoryHighTree, cgroup: CgroupPath, onChange: (previous: Limit<Bytes>) => Promise<void>) {
    this.#tree = tree;
    this.#cgroup = cgroup;
    this.#onChange = onChange;
  }

  /**
   * Lowers memory.high to `limit`; never raises it. Gives what is in force then. A write that nobody waits for any more, and
   * that comes through after {@link restore}, takes itself back. Throws what reading and writing throw.
   */
  async lowerTo(limit: Bytes): Promise<Limit<Bytes>> {
    const found = this.#tree.readHigh(this.#cgroup);
    if (this.#hasEnded() || (found !== 'max' && found <= limit)) return found;
    if (!this.#isOurs(found)) {
      await this.#onChange(found);
      this.#previous = found;
    }
    if (this.#hasEnded()) return found;
    this.#pending = limit;
    await this.#tree.write(this.#cgroup, { file: 'memory.high', value: limit });
    this.#written = limit;
    // Should this fail too, the record that `onChange` has made says what is to be put back.
    if (this.#hasEnded()) await this.restore();
    return limit;
  }

  /**
   * Puts memory.high back as it was, and ends the holding. Raising it makes the kernel reclaim nothing, so this never
   * takes long. Throws UNDO_FAILED when it cannot be put back, with `cause` in its message if there is one.
   */
  async restore(cause?: unknown): Promise<void> {
    this.#isOver = true;
    if (this.#previous === undefined) return;
    try {
      if (!this.#isOurs(this.#tree.readHigh(this.#cgroup))) return;
      await this.#tree.write(this.#cgroup, { file: 'memory.high', value: this.#previous });
    } catch (error) {
      if (isCgroupVanished(error)) return;
      const file = `${this.#cgroup}/memory.high`;
      const before = cause === undefined ? '' : `${messageOf(cause)}; `;
      throw new ShimError(
        Code.INTERNAL,
        Reason.UNDO_FAILED,
        `${before}${file} cannot be put back to ${this.#previous}: ${messageOf(error)}`,
        { file, asked: String(this.#previous) },
        { cause: error },
      );
    }
  }

  /** {@link restore} may have been called while something was awaited. */
  #hasEnded(): boolean {
    return this.#isOver;
  }

  #isOurs(found: Limit<Bytes>): boolean {
    return [this.#written, this.#pending].some((value) => value !== undefined && this.#tree.holds(value, found));
  }
}
