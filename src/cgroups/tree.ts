/** Reads the limits and the usage of cgroups, and writes values and verifies them. */
import {
  type Bytes,
  bytes,
  type CpuMax,
  type CpuWeight,
  crashPoint,
  type Limit,
  type Microseconds,
  microseconds,
  ShimError,
} from '../core/index.ts';
import { CgroupFiles, type CgroupPath, cgroupFilePath, isCgroupVanished, isFileMissing, writeFailed } from './file.ts';
import type { MemorySample, MemoryUse } from './memory-use.ts';
import { cgroupVersion } from './proc.ts';
import { type ReadWatch, watchReads } from './read-watch.ts';
import { type SwapLimits, swapUseOf } from './swap.ts';
import { isRoundedInUnit } from './systemd-units.ts';
import {
  CPU_BURST,
  isSameCpuMax,
  isSameLimit,
  parseCpuMax,
  parseCpuWeight,
  parseLimit,
  parseMemoryStat,
  parseOomKills,
  parseSize,
  unreclaimableOf,
} from './values/controller-files.ts';
import { holdsSetting } from './values/settings.ts';
import { type CgroupWrite, encodeWrite, isQuickWrite } from './values/write.ts';

/** The limits that the kernel enforces. A field is undefined if the kernel or the cgroup does not have the file. */
export interface CgroupLimits {
  readonly memoryMax: Limit<Bytes>;
  readonly cpuMax: CpuMax | undefined;
  /** 0 or 1 if the cgroup is idle (cpu.idle). */
  readonly cpuWeight: CpuWeight | undefined;
}

export interface Written {
  /** `unchanged`: the file already had the value, and nothing was written. */
  readonly outcome: 'written' | 'unchanged';
  /** The file's content after the write, as the kernel prints it. */
  readonly found: string;
}

/** Result of a reclaim request. See {@link CgroupTree.reclaim}. */
export type Reclaimed = 'all' | 'less' | 'unsupported';

export interface CgroupReader {
  exists(cgroup: CgroupPath): boolean;
  children(cgroup: CgroupPath): string[];
  readLimits(cgroup: CgroupPath): Promise<CgroupLimits>;
  readMemoryUse(cgroup: CgroupPath, swapAfter?: SwapLimits): Promise<MemoryUse>;
}

/** Applies writes: {@link CgroupTree} to files, DriverCgroupTree through systemd, which owns the cgroups of units. */
export interface CgroupWriter {
  write(cgroup: CgroupPath, step: CgroupWrite): Promise<Written>;
}

/** Accesses cgroup v2 through its files. */
export class CgroupTree implements CgroupReader, CgroupWriter {
  readonly #files: CgroupFiles;
  readonly #procRoot: string;
  #isVersion2 = false;

  /**
   * @param root mount point of cgroup v2, by default /sys/fs/cgroup
   * @param procRoot the proc file system, by default /proc
   */
  constructor(root?: string, procRoot = '/proc') {
    this.#files = new CgroupFiles(root);
    this.#procRoot = procRoot;
  }

  get root(): string {
    return this.#files.root;
  }

  /** The page size of this machine, to which the kernel rounds sizes. */
  get pageSize(): Bytes {
    return this.#files.pageSize;
  }

  /** Returns the cgroup version at the root; see {@link cgroupVersion}. Version 2, once found, is not unmounted. */
  version(): 1 | 2 | undefined {
    const version = this.#isVersion2 ? 2 : cgroupVersion(this.root);
    this.#isVersion2 = version === 2;
    return version;
  }

  exists(cgroup: CgroupPath): boolean {
    return this.#files.exists(cgroup);
  }

  /** Returns the child cgroups' names. Throws CGROUP_UNAVAILABLE, or `CgroupVanished` if the cgroup is gone. */
  children(cgroup: CgroupPath): string[] {
    return this.#files.children(cgroup);
  }

  /**
   * Whether a cgroup or one of its descendants has a process (cgroup.events, `populated`). True if the kernel does not
   * report it. Throws `CgroupVanished` if the cgroup no longer exists.
   */
  isPopulated(cgroup: CgroupPath): boolean {
    return this.#optional(cgroup, 'cgroup.events', (text) => !/^populated 0$/m.test(text)) ?? true;
  }

  /**
   * Reads the current limits. Throws CGROUP_UNAVAILABLE if memory.max cannot be read (`CgroupVanished` if the cgroup no
   * longer exists); other files may be missing. Reads synchronously, so that the values are from one moment.
   */
  readLimits(cgroup: CgroupPath): Promise<CgroupLimits> {
    return settle(() => this.readLimitsNow(cgroup));
  }

  /** Reads the current limits synchronously. Throws like {@link readLimits}. */
  readLimitsNow(cgroup: CgroupPath): CgroupLimits {
    return {
      memoryMax: this.readMemoryMax(cgroup),
      cpuMax: this.readCpuMax(cgroup),
      cpuWeight: this.#optional(cgroup, 'cpu.weight', parseCpuWeight),
    };
  }

  /** Reads cpu.max. Undefined if the kernel or the cgroup does not have it. Throws like {@link readLimits}. */
  readCpuMax(cgroup: CgroupPath): CpuMax | undefined {
    return this.#optional(cgroup, 'cpu.max', parseCpuMax);
  }

  /** Reads memory.swap.max. Undefined if the kernel has no swap accounting. */
  readSwapMax(cgroup: CgroupPath): Limit<Bytes> | undefined {
    return this.#optional(cgroup, 'memory.swap.max', parseSwapMax);
  }

  /** Reads cpu.max.burst. Undefined if the kernel does not have it. Throws like {@link readLimits}. */
  readBurst(cgroup: CgroupPath): Microseconds | undefined {
    return this.#optional(cgroup, CPU_BURST, (text) => microseconds(Number(text)));
  }

  /**
   * Reads a setting as the kernel prints it. Undefined if the kernel or the cgroup does not have the file. For an unset
   * cpuset, returns the effective one, which the kernel inherits from the parent cgroup.
   */
  readSetting(cgroup: CgroupPath, key: string): string | undefined {
    const text = this.#optional(cgroup, key, (content) => content);
    if (text?.trim() !== '' || (key !== 'cpuset.cpus' && key !== 'cpuset.mems')) return text;
    return this.#optional(cgroup, `${key}.effective`, (content) => content) ?? text;
  }

  /** Whether a setting's content `found` results from writing `asked`; see {@link holdsSetting}. */
  holdsSetting(key: string, asked: string, found: string): boolean | undefined {
    return holdsSetting(key, asked, found, this.#files);
  }

  /** Reads memory.oom.group, `0` or `1`. Undefined if the kernel or the cgroup does not have the file. */
  readOomGroup(cgroup: CgroupPath): string | undefined {
    return this.#optional(cgroup, 'memory.oom.group', (text) => text);
  }

  /** Reads the cgroup's own cpuset; empty if none is set. Undefined if kernel or cgroup lacks the file. */
  readCpuset(cgroup: CgroupPath, file: 'cpuset.cpus' | 'cpuset.mems'): string | undefined {
    return this.#optional(cgroup, file, (text) => text);
  }

  /**
   * Reads the memory usage. Throws CGROUP_UNAVAILABLE, or `CgroupVanished` if the cgroup no longer exists.
   * @param swapAfter swap limits that a change lowers; the usage is computed with these limits
   */
  async readMemoryUse(cgroup: CgroupPath, swapAfter?: SwapLimits): Promise<MemoryUse> {
    const held = parseMemoryStat(await this.#files.read(cgroup, 'memory.stat'));
    const swap = await swapUseOf(this.#files, cgroup, held, { procRoot: this.#procRoot, after: swapAfter });
    return {
      ...this.sampleMemory(cgroup),
      unreclaimable: bytes(Math.max(0, unreclaimableOf(held) - swap.swappable) + swap.excess),
      swappable: bytes(swap.swappable),
      swapExcess: bytes(swap.excess),
      anon: held.anon,
      shmem: held.shmem,
      unevictable: held.unevictable,
      file: held.file,
      kernelUnreclaimable: held.kernelUnreclaimable,
    };
  }

  /**
   * Reads two counters synchronously. They cost the kernel nothing, unlike memory.stat, which it sums up over all
   * descendants. Throws like {@link readMemoryUse}.
   */
  sampleMemory(cgroup: CgroupPath): MemorySample {
    return {
      current: this.readMemoryCurrent(cgroup),
      oomKills: parseOomKills(this.#files.readNow(cgroup, 'memory.events'), 'memory.events'),
    };
  }

  /**
   * Writes a value unless the file already has it, and reads it back. The kernel may round a memory limit down to a
   * page. A unified value is returned as the kernel prints it, without comparison, because its format is not known.
   * Throws INVALID_VALUE for an invalid value, CGROUP_WRITE_FAILED if the kernel rejects it or if the file has another
   * value afterwards (a concurrent writer), CGROUP_UNAVAILABLE if the cgroup or the file does not exist.
   */
  async write(cgroup: CgroupPath, step: CgroupWrite): Promise<Written> {
    const { file, text, isThere } = encodeWrite(step, this.#files.pageSize);
    const before = this.#files.readNow(cgroup, file);
    if (isThere(before)) return { outcome: 'unchanged', found: before };
    await this.#write(cgroup, file, text, isQuickWrite(step, before, this.#files.reclaimsOnWrite));
    const found = this.#files.readNow(cgroup, file);
    if (step.file !== 'unified' && !isThere(found)) {
      const path = cgroupFilePath(this.#files.root, cgroup, file);
      throw writeFailed(path, text, `the file contains ${JSON.stringify(found)} after the write`, { found });
    }
    return { outcome: 'written', found };
  }

  /** Whether the file has this value. Throws INVALID_VALUE and CGROUP_UNAVAILABLE like {@link write}. */
  has(cgroup: CgroupPath, step: CgroupWrite): boolean {
    const { file, isThere } = encodeWrite(step, this.#files.pageSize);
    return isThere(this.#files.readNow(cgroup, file));
  }

  /** Reads memory.current. Throws CGROUP_UNAVAILABLE, or `CgroupVanished` if the cgroup no longer exists. */
  readMemoryCurrent(cgroup: CgroupPath): Bytes {
    return parseSize(this.#files.readNow(cgroup, 'memory.current'), 'memory.current');
  }

  /** Reads memory.swap.current; 0 without swap accounting. Throws CGROUP_UNAVAILABLE for unexpected content. */
  readSwapCurrent(cgroup: CgroupPath): Bytes {
    return this.#optional(cgroup, 'memory.swap.current', (text) => parseSize(text, 'memory.swap.current')) ?? bytes(0);
  }

  /** Reads memory.max. Throws CGROUP_UNAVAILABLE like {@link readLimits}. */
  readMemoryMax(cgroup: CgroupPath): Limit<Bytes> {
    return this.#files.readValue(cgroup, 'memory.max', parseMemoryMax);
  }

  /** Reads memory.high. Throws CGROUP_UNAVAILABLE like {@link readLimits}. */
  readHigh(cgroup: CgroupPath): Limit<Bytes> {
    return parseLimit(this.#files.readNow(cgroup, 'memory.high'), 'memory.high');
  }

  /**
   * Asks the kernel to reclaim bytes from a cgroup. Occupies a thread of the pool meanwhile: a write to memory.reclaim
   * returns after the reclaim, with or without O_NONBLOCK. `less`: the kernel reclaimed less (EAGAIN), or a signal
   * interrupted it (EINTR). `unsupported`: kernels before 5.19 do not have the file. Throws CGROUP_WRITE_FAILED or
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

  /**
   * Waits for cAdvisor to measure the cgroup. Watches cgroup.procs of a pod: cAdvisor reads it after all other files
   * (container/libcontainer/handler.go, GetStats), and neither the shim nor containerd reads it. containerd 2.3 and
   * later read cpu.stat of each pod every second, 2.4 and later also the memory files
   * (internal/cri/server/stats_collector.go). Rejects with CGROUP_UNAVAILABLE.
   */
  async watchMeasuring(cgroup: CgroupPath): Promise<ReadWatch> {
    return watchReads(cgroupFilePath(this.root, cgroup, 'cgroup.procs'));
  }

  /** Whether the memory limit `found` results from `asked`: the kernel rounds to pages. */
  holds(asked: Limit<Bytes>, found: Limit<Bytes>): boolean {
    return isSameLimit(asked, found, this.#files.pageSize);
  }

  /** Whether the CPU limit `found` results from `asked`: systemd may round the quota of a unit. */
  holdsCpu(cgroup: CgroupPath, asked: CpuMax, found: CpuMax): boolean {
    if (asked.quota === 'max' || found.quota === 'max') return asked.quota === found.quota;
    return isSameCpuMax(asked, found) || isRoundedInUnit(cgroup, asked, found);
  }

  /** Reads a file's content as the kernel prints it. Throws CGROUP_UNAVAILABLE like {@link readLimits}. */
  readFile(cgroup: CgroupPath, file: string): Promise<string> {
    return settle(() => this.#files.readNow(cgroup, file));
  }

  /** Every change of a cgroup goes through here. */
  async #write(cgroup: CgroupPath, file: string, text: string, isQuick = false): Promise<void> {
    // memory.high is lowered in a variable number of steps and restored once, so that restoring has its own crash
    // point.
    const about = text === 'max' ? `${file} max` : file;
    crashPoint('cgroup-write-before', about);
    if (isQuick) this.#files.writeNow(cgroup, file, text);
    else await this.#files.write(cgroup, file, text);
    crashPoint('cgroup-write-after', about);
  }

  #optional<Value>(cgroup: CgroupPath, file: string, parse: (text: string) => Value): Value | undefined {
    try {
      return this.#files.readValue(cgroup, file, parse);
    } catch (error) {
      if (isFileMissing(error)) return undefined;
      throw error;
    }
  }
}

const parseMemoryMax = (text: string): Limit<Bytes> => parseLimit(text, 'memory.max');
const parseSwapMax = (text: string): Limit<Bytes> => parseLimit(text, 'memory.swap.max');

/** Runs a synchronous read as a promise: an error becomes a rejection. */
function settle<Value>(read: () => Value): Promise<Value> {
  return new Promise((resolve) => resolve(read()));
}

/** CPU and memory use of a cgroup, and how long its tasks wait. Undefined fields: the kernel does not report them. */
export interface CgroupLoad {
  /** Memory that cannot be reclaimed. */
  readonly unreclaimable: Bytes | undefined;
  /** CPU time since the cgroup was created. */
  readonly cpuTime: Microseconds | undefined;
  /** Percent of the last 10 s with any task waiting for memory (kernel Documentation/accounting/psi.rst). */
  readonly memoryStalled: number | undefined;
  /** Percent of the last 10 s with any task waiting for a CPU. A task that its own quota throttles waits, too. */
  readonly cpuStalled: number | undefined;
}

/** Reads the load of a cgroup. Rejects with `CgroupVanished` if the cgroup no longer exists. */
export async function readLoad(
  tree: Pick<CgroupTree, 'readMemoryUse' | 'readFile'>,
  cgroup: CgroupPath,
): Promise<CgroupLoad> {
  const read = <Value>(file: string, parse: (text: string) => Value | undefined): Promise<Value | undefined> =>
    known(tree.readFile(cgroup, file).then(parse));
  return {
    unreclaimable: (await known(tree.readMemoryUse(cgroup)))?.unreclaimable,
    cpuTime: await read('cpu.stat', cpuTimeOf),
    memoryStalled: await read('memory.pressure', stalledShare),
    cpuStalled: await read('cpu.pressure', stalledShare),
  };
}

/** Returns usage_usec of cpu.stat. */
function cpuTimeOf(text: string): Microseconds | undefined {
  const [, digits] = /^usage_usec (\d{1,15})$/m.exec(text) ?? [];
  return digits === undefined ? undefined : microseconds(Number(digits));
}

/** Returns the average over 10 s of the line `some`. */
function stalledShare(text: string): number | undefined {
  const [, percent] = /^some avg10=(\d{1,3}\.\d+) /m.exec(text) ?? [];
  return percent === undefined ? undefined : Number(percent);
}

/** Returns undefined if the kernel lacks the file or has it disabled (`psi=0`: EOPNOTSUPP). */
async function known<Value>(reading: Promise<Value>): Promise<Value | undefined> {
  try {
    return await reading;
  } catch (error) {
    if (!(error instanceof ShimError) || isCgroupVanished(error)) throw error;
    return undefined;
  }
}
