import { CgroupVanished } from '../../src/cgroups/file.ts';
import type { LowerUsageTree } from '../../src/cgroups/lower-usage.ts';
import type { MemorySample, MemoryUse } from '../../src/cgroups/memory-use.ts';
import type { SwapLimits } from '../../src/cgroups/swap.ts';
import type { Reclaimed, Written } from '../../src/cgroups/tree.ts';
import type { CgroupWrite } from '../../src/cgroups/values/write.ts';
import { Reason, ShimError } from '../../src/core/errors.ts';
import { Code } from '../../src/core/grpc.ts';
import { type Bytes, bytes, type Limit } from '../../src/core/quantities/numbers.ts';

/**
 * The memory of one fake cgroup, for situations that a kernel does not create on demand. A test can override each
 * method.
 */
export class FakeMemory implements LowerUsageTree {
  high: Limit<Bytes> = 'max';
  oomKills = 0;
  /** memory.swap.max, and memory in swap. In bytes. Reclaim does not swap here. */
  swapMax = 0;
  swapped = 0;
  isGone = false;
  /** Kernels before 5.19 have no memory.reclaim. There a write to memory.high reclaims. */
  hasReclaim = true;
  /** All values that were written to memory.high. */
  readonly highs: Limit<Bytes>[] = [];
  /** All amounts that were requested from memory.reclaim. */
  readonly asked: number[] = [];
  /** Called at each read of the usage: simulates other processes. */
  meanwhile: () => void = () => undefined;
  /** Awaited before a write has an effect. */
  beforeReclaim: () => Promise<void> = () => Promise.resolve();
  beforeHigh: (value: Limit<Bytes>) => Promise<void> = () => Promise.resolve();
  /** Awaited after a write to memory.high has had its effect. */
  afterHigh: (value: Limit<Bytes>) => Promise<void> = () => Promise.resolve();

  /** @param stuck page cache that reclaim does not free, for example dirty pages. All in bytes. */
  constructor(
    public anon: number,
    public cache: number,
    public stuck = 0,
  ) {}

  get current(): number {
    return this.anon + this.cache + this.stuck;
  }

  sampleMemory(): MemorySample {
    return { current: this.readMemoryCurrent(), oomKills: this.oomKills };
  }

  readMemoryCurrent(): Bytes {
    if (this.isGone) throw gone();
    this.meanwhile();
    return bytes(this.current);
  }

  readSwapCurrent(): Bytes {
    if (this.isGone) throw gone();
    return bytes(this.swapped);
  }

  readMemoryUse(cgroup: string, swapAfter?: SwapLimits): Promise<MemoryUse> {
    return this.#whileThere(() => {
      const none = bytes(0);
      const most = Math.min(this.swapMax, Number(swapAfter?.get(cgroup) ?? this.swapMax));
      const [swappable, swapExcess] = [Math.max(0, most - this.swapped), Math.max(0, this.swapped - most)];
      const written = Math.min(this.anon, swappable);
      return {
        current: bytes(this.current),
        unreclaimable: bytes(this.anon - written + swapExcess),
        swappable: bytes(written),
        swapExcess: bytes(swapExcess),
        anon: bytes(this.anon),
        shmem: none,
        unevictable: none,
        file: bytes(this.cache + this.stuck),
        kernelUnreclaimable: none,
        oomKills: this.oomKills,
      };
    });
  }

  readHigh(): Limit<Bytes> {
    if (this.isGone) throw gone();
    return this.high;
  }

  async write(_cgroup: string, { file, value }: CgroupWrite): Promise<Written> {
    if (file !== 'memory.high') throw new Error(`${file} must not be written`);
    await this.beforeHigh(value);
    await this.#whileThere(() => {
      this.highs.push(value);
      this.high = value;
      if (!this.hasReclaim && value !== 'max') this.#free(this.current - value);
    });
    await this.afterHigh(value);
    if (this.high !== value) throw overwritten(this.high);
    return { outcome: 'written', found: String(value) };
  }

  async reclaim(_cgroup: string, amount: Bytes): Promise<Reclaimed> {
    if (!this.hasReclaim) return 'unsupported';
    this.asked.push(amount);
    await this.beforeReclaim();
    return this.#whileThere(() => (this.#free(amount) < amount ? 'less' : 'all'));
  }

  holds(asked: Limit<Bytes>, found: Limit<Bytes>): boolean {
    return asked === found;
  }

  #free(amount: number): number {
    const freed = Math.min(this.cache, Math.max(0, amount));
    this.cache -= freed;
    return freed;
  }

  #whileThere<Result>(read: () => Result): Promise<Result> {
    return this.isGone ? Promise.reject(gone()) : Promise.resolve(read());
  }
}

const overwritten = (found: Limit<Bytes>): ShimError =>
  new ShimError(Code.INTERNAL, Reason.CGROUP_WRITE_FAILED, 'memory.high: another value', { found: String(found) });

export const writeRefused = (): ShimError =>
  new ShimError(Code.INTERNAL, Reason.CGROUP_WRITE_FAILED, 'memory.high: refused', { errno: 'EIO' });

const gone = (): CgroupVanished =>
  new CgroupVanished(Code.FAILED_PRECONDITION, Reason.CGROUP_UNAVAILABLE, 'the cgroup no longer exists', {
    errno: 'ENODEV',
  });
