import { type Bytes, bytes, Code, type Limit, messageOf, Reason, ShimError } from '../core/index.ts';
import { type CgroupPath, isCgroupVanished, isOverwritten } from './file.ts';
import type { CgroupTree } from './tree.ts';
import { parseLimit } from './values/controller-files.ts';

type MemoryHighTree = Pick<CgroupTree, 'readHigh' | 'write' | 'holds'>;

/**
 * Every temporary value is {@link MARK} above a multiple of {@link MARK_EVERY}. After a crash, the mark distinguishes
 * temporary values from values of other programs, which write whole MiB or computed sizes: 1 in 64 computed sizes has
 * the mark. Both numbers are multiples of the largest page size, so the kernel does not round the value.
 */
const MARK_EVERY = 256 * 1024;
const MARK = 192 * 1024;

/** Returns the largest marked value up to `limit`, and at least the smallest one. */
export const markedHigh = (limit: Bytes): Bytes =>
  bytes(Math.max(Math.floor((limit - MARK) / MARK_EVERY), 0) * MARK_EVERY + MARK);

/** Whether memory.high has a value that {@link TemporaryMemoryHigh} may have written. */
export const isMarkedHigh = (found: Limit<Bytes>): boolean => found !== 'max' && found % MARK_EVERY === MARK;

/** The memory.high that a cgroup had before the shim lowered it. */
export interface PreviousHigh {
  readonly cgroup: CgroupPath;
  readonly memoryHigh: Limit<Bytes>;
  /** Set by a shim version whose temporary values have no mark: any lower value may be temporary. */
  readonly isUnmarked?: true;
}

/**
 * Restores the memory.high that an earlier process has lowered temporarily. Leaves a value that the shim has not
 * written: the runtime, kubelet (memory QoS) or another program has set it since. Does nothing if the cgroup no longer
 * exists. Throws the other errors of reading and writing.
 */
export async function restoreMarkedHigh(
  tree: Pick<MemoryHighTree, 'readHigh' | 'write'>,
  { cgroup, memoryHigh, isUnmarked }: PreviousHigh,
): Promise<void> {
  try {
    const found = tree.readHigh(cgroup);
    // The shim only lowers memory.high.
    const isLower = found !== 'max' && (memoryHigh === 'max' || found < memoryHigh);
    if (!isLower || !(isUnmarked === true || isMarkedHigh(found))) return;
    await writeHigh(tree, cgroup, memoryHigh);
  } catch (error) {
    if (!isCgroupVanished(error)) throw error;
  }
}

/**
 * Writes memory.high. A value that another process writes at the same time is not an error: systemd writes its own
 * value whenever a property of the unit changes or systemd reloads. Returns the value in force afterwards, or undefined
 * if another process has written one.
 */
async function writeHigh(
  tree: Pick<MemoryHighTree, 'write'>,
  cgroup: CgroupPath,
  value: Limit<Bytes>,
): Promise<Limit<Bytes> | undefined> {
  try {
    const { found } = await tree.write(cgroup, { file: 'memory.high', value });
    return parseLimit(found, 'memory.high');
  } catch (error) {
    if (!isOverwritten(error)) throw error;
    return undefined;
  }
}

/**
 * Lowers memory.high of a cgroup temporarily and restores it. Does not overwrite values that others have written in
 * between (kubelet's memory QoS, an update by the runtime).
 */
export class TemporaryMemoryHigh {
  /** The value to restore; undefined until memory.high is lowered. */
  #previous: Limit<Bytes> | undefined;
  /** The last value written, and the one being written. The file has one of them unless another process writes it. */
  #written: Bytes | undefined;
  #pending: Bytes | undefined;
  #isOver = false;

  /** @param onChange awaited before the file is changed, with its current value */
  constructor(
    private readonly tree: MemoryHighTree,
    private readonly cgroup: CgroupPath,
    private readonly onChange: (previous: Limit<Bytes>) => Promise<void>,
  ) {}

  /**
   * Lowers memory.high to at most `most` (see {@link markedHigh}), never raises it. Returns the value in force
   * afterwards. If {@link restore} was called during the write, restores memory.high again. Throws the errors of
   * reading and writing.
   */
  async lowerTo(most: Bytes): Promise<Limit<Bytes>> {
    const limit = markedHigh(most);
    const found = this.tree.readHigh(this.cgroup);
    if (this.#hasEnded() || (found !== 'max' && found <= Math.max(most, limit))) return found;
    if (!this.#isOurs(found)) {
      await this.onChange(found);
      this.#previous = found;
    }
    if (this.#hasEnded()) return found;
    return (await this.#set(limit)) ?? this.tree.readHigh(this.cgroup);
  }

  /**
   * Raises memory.high to at most `most` (see {@link markedHigh}), if it has a value of ours, and not above the value
   * to restore. Never lowers it. Throws the errors of reading and writing.
   */
  async raiseTo(most: Bytes): Promise<void> {
    const previous = this.#previous;
    if (previous === undefined || this.#hasEnded()) return;
    const found = this.tree.readHigh(this.cgroup);
    const limit = markedHigh(previous === 'max' ? most : bytes(Math.min(most, previous)));
    if (found === 'max' || limit <= found || !this.#isOurs(found)) return;
    await this.#set(limit);
  }

  /**
   * Returns the value in force afterwards; undefined if another process has written one, or if {@link restore} was
   * called during the write: memory.high is then restored again.
   */
  async #set(limit: Bytes): Promise<Limit<Bytes> | undefined> {
    this.#pending = limit;
    const found = await writeHigh(this.tree, this.cgroup, limit);
    this.#written = limit;
    if (!this.#hasEnded()) return found;
    // If this fails too, the caller can restore the value that `onChange` recorded.
    await this.restore();
    return undefined;
  }

  /**
   * Restores memory.high. Fast, because the kernel does not reclaim when it is raised. Throws UNDO_FAILED if that
   * fails, with `cause` in its message if given.
   * @param set the value that another process has set meanwhile; it may equal a temporary value by chance
   */
  async restore(cause?: unknown, set?: Limit<Bytes>): Promise<void> {
    this.#isOver = true;
    if (this.#previous === undefined) return;
    this.#previous = set ?? this.#previous;
    try {
      if (!this.#isOurs(this.tree.readHigh(this.cgroup))) return;
      await writeHigh(this.tree, this.cgroup, this.#previous);
    } catch (error) {
      if (isCgroupVanished(error)) return;
      const file = `${this.cgroup}/memory.high`;
      const before = cause === undefined ? '' : `${messageOf(cause)}; `;
      throw new ShimError(
        Code.INTERNAL,
        Reason.UNDO_FAILED,
        `${before}${file} cannot be restored to ${this.#previous}: ${messageOf(error)}`,
        { file, asked: String(this.#previous) },
        { cause: error },
      );
    }
  }

  /** Whether {@link restore} was called, possibly during an await. */
  #hasEnded(): boolean {
    return this.#isOver;
  }

  #isOurs(found: Limit<Bytes>): boolean {
    return [this.#written, this.#pending].some((value) => value !== undefined && this.tree.holds(value, found));
  }
}
