/** One cgroup: its limits, its use, and one write at a time, read back. */
import { crashPoint } from '../core/crash-points/index.ts';
import { ShimError } from '../core/errors/index.ts';
import type { Bytes, CpuMax, CpuWeight, Limit } from '../core/quantities/index.ts';
import { assertCpuMax, assertCpuWeight, formatCpuMax, isSameCpuMax, parseCpuMax, parseCpuWeight } from './cpu.ts';
import { CgroupFiles, type CgroupPath, cgroupFilePath, isFileMissing, writeFailed } from './file.ts';
import { cgroupVersion } from './proc.ts';
import {
  formatLimit,
  isSameLimit,
  parseLimit,
  parseMemoryStat,
  parseOomKills,
  parseSize,
  unreclaimableOf,
} from './memory.ts';
import { assertUnifiedKey } from './unified.ts';
import { isRoundedInUnit } from './unit-properties.ts';
import type { CgroupWrite } from './write.ts';

/** What the kernel enforces now. A field is undefined where the kernel or the cgroup has no such file. */
export interface CgroupLimits {
  readonly memoryMax: Limit<Bytes>;
  readonly cpuMax: CpuMax | undefined;
  /** 0 or 1 when the cgroup is idle (cpu.idle). */
  readonly cpuWeight: CpuWeight | undefined;
}

/** What the cgroup, with all beneath it, has in memory now. In bytes, but for `oomKills`. */
export interface MemoryUse {
  readonly current: Bytes;
  /** What no reclaim can free without swap; see {@link unreclaimableOf}. */
  readonly unreclaimable: Bytes;
  readonly anon: Bytes;
  readonly shmem: Bytes;
  readonly unevictable: Bytes;
  readonly file: Bytes;
  /** Part of what `unreclaimable` counts: memory of the kernel itself that does not shrink. */
  readonly kernelUnreclaimable: Bytes;
  /** Processes that the OOM killer has killed in here, ever. */
  readonly oomKills: number;
}

/** What of {@link MemoryUse} the kernel has at hand. */
export type MemoryGlance = Pick<MemoryUse, 'current' | 'oomKills'>;

export interface Written {
  /** `unchanged`: the kernel had the value already, and nothing was written. */
  readonly outcome: 'written' | 'unchanged';
  /** The file's content after it, as the kernel prints it. */
  readonly found: string;
}

/** What came of asking the kernel to reclaim; see {@link CgroupTree.reclaim}. */
export type Reclaimed = 'all' | 'less' | 'unsupported';

export interface CgroupReader {
  exists(cgroup: CgroupPath): boolean;
  children(cgroup: CgroupPath): string[];
  readLimits(cgroup: CgroupPath): Promise<CgroupLimits>;
  readMemoryUse(cgroup: CgroupPath): Promise<MemoryUse>;
}

/** Who carries out a write: the files themselves here; in systemd-tree.ts systemd, which owns the cgroups of its units. */
export interface CgroupWriter {
  write(cgroup: CgroupPath, step: CgroupWrite): Promise<Written>;
}

/** cgroup v2 by its files. */
export class CgroupTree implements CgroupReader, CgroupWriter {
  readonly #files: CgroupFiles;

  /** `root`: where cgroup v2 is mounted, /sys/fs/cgroup unless said otherwise. */
  constructor(root?: string) {
    this.#files = new CgroupFiles(root);
  }

  get root(): string {
    return this.#files.root;
  }

  /** What is mounted at the root; see {@link cgroupVersion}. */
  version(): Promise<1 | 2 | undefined> {
    return cgroupVersion(this.root);
  }

  exists(cgroup: CgroupPath): boolean {
    return this.#files.exists(cgroup);
  }

  /** The names of the cgroups right beneath this one. Throws CGROUP_UNAVAILABLE, as `CgroupVanished` when it is gone. */
  children(cgroup: CgroupPath): string[] {
    return this.#files.children(cgroup);
  }

  /**
   * The limits as they are. Throws CGROUP_UNAVAILABLE when memory.max cannot be read (as `CgroupVanished` when the cgroup
   * is gone); other files may be missing. Reads at once: no other call of this thread comes in between.
   */
  readLimits(cgroup: CgroupPath): Promise<CgroupLimits> {
    return settle(() => this.readLimitsNow(cgroup));
  }

  /** The same without a promise. */
  readLimitsNow(cgroup: CgroupPath): CgroupLimits {
    return {
      memoryMax: this.readMemoryMax(cgroup),
      cpuMax: this.#optional(cgroup, 'cpu.max', parseCpuMax),
      cpuWeight: this.#optional(cgroup, 'cpu.weight', parseCpuWeight),
    };
  }

  /** memory.swap.max; undefined where the kernel was built without, or started with swap accounting off. */
  readSwapMax(cgroup: CgroupPath): Limit<Bytes> | undefined {
    return this.#optional(cgroup, 'memory.swap.max', (text) => parseLimit(text, 'memory.swap.max'));
  }

  /** memory.oom.group, `0` or `1`; undefined where the kernel or the cgroup has none. */
  readOomGroup(cgroup: CgroupPath): string | undefined {
    return this.#optional(cgroup, 'memory.oom.group', (text) => text);
  }

  /** The memory in use. Throws CGROUP_UNAVAILABLE, as `CgroupVanished` when the cgroup is gone. */
  async readMemoryUse(cgroup: CgroupPath): Promise<MemoryUse> {
    const held = parseMemoryStat(await this.#files.read(cgroup, 'memory.stat'));
    return {
      ...this.glanceAtMemory(cgroup),
      unreclaimable: unreclaimableOf(held),
      anon: held.anon,
      shmem: held.shmem,
      unevictable: held.unevictable,
      file: held.file,
      kernelUnreclaimable: held.kernelUnreclaimable,
    };
  }

  /**
   * Two counters: unlike memory.stat, which is summed up from all that lies beneath, they cost the kernel nothing. Reads at
   * once. Throws as {@link readMemoryUse}.
   */
  glanceAtMemory(cgroup: CgroupPath): MemoryGlance {
    return {
      current: this.readMemoryCurrent(cgroup),
      oomKills: parseOomKills(this.#files.readNow(cgroup, 'memory.events'), 'memory.events'),
    };
  }

  /**
   * Writes one value unless it is there already, and reads it back. A memory limit may come back rounded down to a page;
   * of a unified value it is not known how the kernel prints it, so what it prints is returned and not compared.
   * Throws INVALID_VALUE for a value that is none, CGROUP_WRITE_FAILED when the kernel refuses it or has another one
   * afterwards (somebody else wrote at the same time), CGROUP_UNAVAILABLE when the cgroup or the file is not there.
   */
  async write(cgroup: CgroupPath, step: CgroupWrite): Promise<Written> {
    const { file, text, isThere } = encode(step, this.#files.pageSize);
    const before = this.#files.readNow(cgroup, file);
    if (isThere(before)) return { outcome: 'unchanged', found: before };
    await this.#write(cgroup, file, text, raisesLimit(step, before));
    const found = this.#files.readNow(cgroup, file);
    if (step.file !== 'unified' && !isThere(found)) {
      const path = cgroupFilePath(this.#files.root, cgroup, file);
      throw writeFailed(path, text, `the kernel has ${JSON.stringify(found)} afterwards`, { found });
    }
    return { outcome: 'written', found };
  }

  /** Whether the file has this value. Throws INVALID_VALUE, CGROUP_UNAVAILABLE as {@link write}. */
  has(cgroup: CgroupPath, step: CgroupWrite): boolean {
    const { file, isThere } = encode(step, this.#files.pageSize);
    return isThere(this.#files.readNow(cgroup, file));
  }

  /** Reads memory.current. Throws CGROUP_UNAVAILABLE, as `CgroupVanished` when the cgroup is gone. */
  readMemoryCurrent(cgroup: CgroupPath): Bytes {
    return parseSize(this.#files.readNow(cgroup, 'memory.current'), 'memory.current');
  }

  /** memory.max. Throws CGROUP_UNAVAILABLE as {@link readLimits}. */
  readMemoryMax(cgroup: CgroupPath): Limit<Bytes> {
    return parseLimit(this.#files.readNow(cgroup, 'memory.max'), 'memory.max');
  }

  /** memory.high. Throws CGROUP_UNAVAILABLE as {@link readLimits}. */
  readHigh(cgroup: CgroupPath): Limit<Bytes> {
    return parseLimit(this.#files.readNow(cgroup, 'memory.high'), 'memory.high');
  }

  /**
   * Asks the kernel to reclaim so many bytes of a cgroup. Holds a thread of the pool for as long as that takes: memory.reclaim
   * works before the write returns, opened with O_NONBLOCK or not. `less`: not all of it could be reclaimed (EAGAIN), or
   * a signal came in between (EINTR). `unsupported`: kernels before 5.19 have no such file. Throws CGROUP_WRITE_FAILED,
   * CgroupVanished.
   */
  async reclaim(cgroup: CgroupPath, amount: Bytes): Promise<Reclaimed> {
    try {
      await this.#write(cgroup, 'memory.reclaim', String(amount));
      return 'all';
    } catch (error) {
      if (isFileMissing(error)) return 'unsupported';
      const errno = error instanceof ShimError ? error.context.errno : undefined;
      if (errno === 'EAGAIN' || errno === 'EINTR') return 'less';
      throw error;
    }
  }

  /** Whether a memory limit that was asked for is the one that was found: the kernel counts in pages. */
  holds(asked: Limit<Bytes>, found: Limit<Bytes>): boolean {
    return isSameLimit(asked, found, this.#files.pageSize);
  }

  /** Whether a CPU limit that was asked for is the one that was found: systemd may have rounded that of a unit. */
  holdsCpu(cgroup: CgroupPath, asked: CpuMax, found: CpuMax): boolean {
    if (asked.quota === 'max' || found.quota === 'max') return asked.quota === found.quota;
    return isSameCpuMax(asked, found) || isRoundedInUnit(cgroup, asked, found);
  }

  /** The content of a file by name, as the kernel prints it. Throws CGROUP_UNAVAILABLE as {@link readLimits}. */
  readFile(cgroup: CgroupPath, file: string): Promise<string> {
    return settle(() => this.#files.readNow(cgroup, file));
  }

  /** All that changes a cgroup. */
  async #write(cgroup: CgroupPath, file: string, text: string, isQuick = false): Promise<void> {
    // memory.high is lowered in as many steps as it takes, and put back once: that has a name of its own.
    const about = text === 'max' ? `${file} max` : file;
    crashPoint('cgroup-write-before', about);
    if (isQuick) this.#files.writeNow(cgroup, file, text);
    else await this.#files.write(cgroup, file, text);
    crashPoint('cgroup-write-after', about);
  }

  #optional<Value>(cgroup: CgroupPath, file: string, parse: (text: string) => Value): Value | undefined {
    try {
      return parse(this.#files.readNow(cgroup, file));
    } catch (error) {
      if (isFileMissing(error)) return undefined;
      throw error;
    }
  }
}

/** Whether a write gives more memory: then the kernel sets a variable, and has nothing to reclaim before it returns. */
function raisesLimit(step: CgroupWrite, before: string): boolean {
  if (step.file !== 'memory.max' && step.file !== 'memory.high') return false;
  const now = parseLimit(before, step.file);
  return now !== 'max' && (step.value === 'max' || step.value > now);
}

interface Encoded {
  readonly file: string;
  readonly text: string;
  readonly isThere: (found: string) => boolean;
}

function encode(step: CgroupWrite, pageSize: Bytes): Encoded {
  switch (step.file) {
    case 'cpu.max':
      assertCpuMax(step.value);
      return {
        file: step.file,
        text: formatCpuMax(step.value),
        isThere: (found) => isSameCpuMax(parseCpuMax(found), step.value),
      };
    case 'cpu.weight':
      assertCpuWeight(step.value);
      return { file: step.file, text: String(step.value), isThere: (found) => parseCpuWeight(found) === step.value };
    case 'unified':
      assertUnifiedKey(step.key, step.value);
      // A write of nothing would not reach the kernel: an empty line takes a setting away (cpuset.cpus).
      return { file: step.key, text: step.value === '' ? '\n' : step.value, isThere: (found) => found === step.value };
    case 'memory.max':
    case 'memory.high':
    case 'memory.low':
    case 'memory.min':
    case 'memory.swap.max':
      return {
        file: step.file,
        text: formatLimit(step.value),
        isThere: (found) => isSameLimit(step.value, parseLimit(found, step.file), pageSize),
      };
  }
}

/** What throws becomes a rejection. */
function settle<Value>(read: () => Value): Promise<Value> {
  return new Promise((resolve) => resolve(read()));
}
