/**
 * The only module that opens cgroup files. Paths stay inside the root, no file is ever created, and errors name the
 * file, the value and the kernel's error.
 */
import {
  closeSync,
  constants,
  fstatSync,
  ftruncateSync,
  openSync,
  read,
  readdirSync,
  readFileSync,
  readlinkSync,
  statfsSync,
  statSync,
  write,
  writeSync,
} from 'node:fs';
import { release } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type Bytes, Code, errnoOf, messageOf, PAGE_SIZE, Reason, ShimError } from '../core/index.ts';
import { OpenFile, OpenFiles } from './open-files.ts';
import { lastNumber } from './values/settings.ts';

/** Absolute path of a cgroup from the root of the cgroup file system, such as `/kubepods/burstable/pod1`. */
export type CgroupPath = string;

export const CGROUP_ROOT = '/sys/fs/cgroup';

const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY } = constants;
// O_PATH of Linux, which Node does not export: a descriptor that only identifies a path (open(2)).
const O_PATH = 0o10000000;

/** The cgroup no longer exists: its pod or container has ended. */
export class CgroupVanished extends ShimError {}

/** Whether an error means that the cgroup itself no longer exists. */
export function isCgroupVanished(error: unknown): error is CgroupVanished {
  return error instanceof CgroupVanished;
}

/** Whether an error means that an existing cgroup lacks a file: the controller is off or the kernel too old. */
export function isFileMissing(error: unknown): boolean {
  return error instanceof ShimError && error.context.errno === 'ENOENT' && !isCgroupVanished(error);
}

/** Returns a cgroup's folder. Throws CGROUP_UNAVAILABLE if a path could leave the root: relative or with `..`. */
export function cgroupFolder(root: string, cgroup: CgroupPath): string {
  if (!cgroup.startsWith('/') || cgroup.includes('\0') || cgroup.split('/').includes('..')) {
    throw unavailable(cgroup, 'EINVAL', 'is not a valid cgroup path');
  }
  return cgroup === '/' ? root : `${root}${cgroup}`;
}

/** Returns a file's path. Throws CGROUP_UNAVAILABLE like {@link cgroupFolder}, and if `file` is no plain name. */
export function cgroupFilePath(root: string, cgroup: CgroupPath, file: string): string {
  const folder = cgroupFolder(root, cgroup);
  if (!/^[a-z_][a-z0-9_.]*$/i.test(file))
    throw unavailable(`${folder}/${file}`, 'EINVAL', 'is not a valid path of a cgroup file');
  return `${folder}/${file}`;
}

/** Reads the last possible number, fixed until the next boot (kernel Documentation/ABI, sysfs-devices-system-*). */
function readLastPossible(kind: 'cpu' | 'node'): number | undefined {
  try {
    return lastNumber(readFileSync(`/sys/devices/system/${kind}/possible`, 'utf8'));
  } catch {
    // A kernel without NUMA has one node, and no file for it.
    return kind === 'node' ? 0 : undefined;
  }
}

/** Maximum number of verified cgroups to remember. More than the number of containers on a node. */
const MOST_KNOWN_INSIDE = 4096;

/** CGROUP2_SUPER_MAGIC of linux/magic.h. */
const CGROUP2 = 0x63677270;
/** The files that stay open of all instances, because they share the process's descriptor limit. */
const openFiles = new OpenFiles();

/** Opens a file. If the process has no free descriptor, closes the files that {@link openFiles} holds and retries. */
function openCgroupFile(path: string, access: number): number {
  const flags = access | O_NOFOLLOW | O_NONBLOCK;
  try {
    return openSync(path, flags);
  } catch (error) {
    if (errnoOf(error) !== 'EMFILE' || openFiles.size === 0) throw error;
    openFiles.clear();
    return openSync(path, flags);
  }
}

/**
 * Whether a write that lowers a memory limit reclaims before it returns, although its file is open with O_NONBLOCK:
 * kernels before 6.16 ignore the flag.
 * @param release of the kernel, as uname(2) returns it: `6.18.5-cloud`
 */
export function reclaimsOnWrite(release: string): boolean {
  const [major = 0, minor = 0] = release.split('.').map((part) => Number.parseInt(part, 10));
  // A release of an unknown form is compared as NaN, which is not above anything.
  return !(major > 6 || (major === 6 && minor >= 16));
}

export class CgroupFiles {
  #rootLink: string | undefined;
  readonly #lastPossible = new Map<'cpu' | 'node', number | undefined>();
  /** Files that {@link readNow} has left open, by cgroup and name. */
  readonly #open = new Map<CgroupPath, Map<string, OpenFile>>();
  /** Cgroups whose path was verified. */
  readonly #inside = new Set<CgroupPath>();
  #isCgroup2: boolean | undefined;

  /** @param root mount point of cgroup v2 */
  constructor(readonly root: string = CGROUP_ROOT) {}

  /** See {@link reclaimsOnWrite}. */
  readonly reclaimsOnWrite = reclaimsOnWrite(release());

  /** The page size of this machine, to which the kernel rounds limits. */
  readonly pageSize: Bytes = PAGE_SIZE;

  /** The last CPU or memory node that this machine may have. Undefined if the kernel does not report it. */
  readonly lastPossible = (kind: 'cpu' | 'node'): number | undefined => {
    if (!this.#lastPossible.has(kind)) this.#lastPossible.set(kind, readLastPossible(kind));
    return this.#lastPossible.get(kind);
  };

  /** Whether the cgroup exists. */
  exists(cgroup: CgroupPath): boolean {
    const folder = cgroupFolder(this.root, cgroup);
    return statSync(folder, { throwIfNoEntry: false })?.isDirectory() ?? false;
  }

  /** Returns the child cgroups' names. Throws CGROUP_UNAVAILABLE, or {@link CgroupVanished} if it is gone. */
  children(cgroup: CgroupPath): string[] {
    const folder = cgroupFolder(this.root, cgroup);
    try {
      return readdirSync(folder, { withFileTypes: true })
        .filter((entry) => entry.isDirectory())
        .map((entry) => entry.name);
    } catch (error) {
      throw this.#readError(error, cgroup, folder);
    }
  }

  /**
   * Reads a file synchronously and returns its content without the last newline. For files that the kernel answers from
   * a variable in microseconds (memory.max, cpu.max, cpu.weight): a reader never waits behind blocked writers in the
   * thread pool. Throws CGROUP_UNAVAILABLE, or {@link CgroupVanished} if the cgroup no longer exists.
   */
  readNow(cgroup: CgroupPath, file: string): string {
    return this.#read(cgroup, file).text;
  }

  /** Reads a file as {@link readNow} does and parses it, but the same content only once. */
  readValue<Value>(cgroup: CgroupPath, file: string, parse: (text: string) => Value): Value {
    return this.#read(cgroup, file).parsed(parse);
  }

  #read(cgroup: CgroupPath, file: string): OpenFile {
    return this.#readOpen(cgroup, file) ?? this.#openAndRead(cgroup, file);
  }

  /**
   * Reads an open file, whose path has been verified already. Undefined if it must be opened: the cgroup may have been
   * removed and recreated.
   */
  #readOpen(cgroup: CgroupPath, file: string): OpenFile | undefined {
    const known = this.#open.get(cgroup)?.get(file);
    if (known === undefined) return undefined;
    try {
      if (!this.#isRemoved(known.descriptor)) {
        known.read();
        return known;
      }
    } catch {
      // The caller opens the file again and reports its error.
    }
    openFiles.drop(known);
    return undefined;
  }

  #openAndRead(cgroup: CgroupPath, file: string): OpenFile {
    const path = cgroupFilePath(this.root, cgroup, file);
    let descriptor: number | undefined;
    try {
      descriptor = openCgroupFile(path, O_RDONLY);
      this.#assertInsideOnce(descriptor, path, cgroup);
      const opened = new OpenFile(descriptor, () => this.#closed(cgroup, file));
      opened.read();
      this.#keep(cgroup, file, opened);
      descriptor = undefined;
      return opened;
    } catch (error) {
      this.#inside.delete(cgroup);
      throw this.#readError(error, cgroup, path);
    } finally {
      if (descriptor !== undefined) closeSync(descriptor);
    }
  }

  #closed(cgroup: CgroupPath, file: string): void {
    const files = this.#open.get(cgroup);
    files?.delete(file);
    if (files?.size === 0) this.#open.delete(cgroup);
  }

  /** Leaves a file open, if the limit allows it. */
  #keep(cgroup: CgroupPath, file: string, opened: OpenFile): void {
    const files = this.#open.get(cgroup) ?? new Map<string, OpenFile>();
    this.#open.set(cgroup, files.set(file, opened));
    openFiles.keep(opened);
  }

  /**
   * Whether an open file was removed or replaced. On cgroup2, the read itself fails with ENODEV if the cgroup no longer
   * exists (kernel fs/kernfs/file.c, kernfs_get_active). Other file systems, which tests use, do not report it.
   */
  #isRemoved(descriptor: number): boolean {
    this.#isCgroup2 ??= statfsSync(this.root).type === CGROUP2;
    return !this.#isCgroup2 && fstatSync(descriptor).nlink === 0;
  }

  /**
   * Reads a file in the thread pool. For files that cost the kernel some work, such as memory.stat, which it sums up.
   * Opens and closes the file synchronously, which is faster than a round trip through the pool. Throws like {@link
   * readNow}.
   */
  async read(cgroup: CgroupPath, file: string): Promise<string> {
    const path = cgroupFilePath(this.root, cgroup, file);
    let descriptor: number | undefined;
    try {
      descriptor = openCgroupFile(path, O_RDONLY);
      this.#assertInside(descriptor, path);
      return await readTextInPool(descriptor);
    } catch (error) {
      throw this.#readError(error, cgroup, path);
    } finally {
      if (descriptor !== undefined) closeSync(descriptor);
    }
  }

  /**
   * Writes a value with one write(2). Does not create files, so that a missing file is ENOENT (creating one in cgroupfs
   * would be EACCES).
   *
   * Opens the file with O_NONBLOCK. Since Linux 6.16, a write to memory.max or memory.high then neither reclaims nor
   * kills before it returns: the limit is set immediately and enforced at the next charge (kernel
   * Documentation/admin-guide/cgroup-v2.rst). Older kernels ignore the flag, and the write occupies a thread of the
   * pool during reclaim.
   *
   * Throws CGROUP_WRITE_FAILED (INVALID_ARGUMENT if the kernel rejects the value with EINVAL or ERANGE) or {@link
   * CgroupVanished}.
   */
  async write(cgroup: CgroupPath, file: string, value: string): Promise<void> {
    const path = cgroupFilePath(this.root, cgroup, file);
    let descriptor: number | undefined;
    try {
      descriptor = this.#openToWrite(path);
      const { bytesWritten } = await writeInPool(descriptor, value);
      assertWhole(bytesWritten, value);
    } catch (error) {
      throw this.#writeError(error, cgroup, path, value);
    } finally {
      if (descriptor !== undefined) closeSync(descriptor);
    }
  }

  /** Writes a value synchronously, if it costs the kernel nothing: a trip through the pool takes far longer. */
  writeNow(cgroup: CgroupPath, file: string, value: string): void {
    const path = cgroupFilePath(this.root, cgroup, file);
    let descriptor: number | undefined;
    try {
      descriptor = this.#openToWrite(path);
      assertWhole(writeSync(descriptor, value), value);
    } catch (error) {
      throw this.#writeError(error, cgroup, path, value);
    } finally {
      if (descriptor !== undefined) closeSync(descriptor);
    }
  }

  #openToWrite(path: string): number {
    const descriptor = openCgroupFile(path, O_WRONLY);
    try {
      this.#assertInside(descriptor, path);
      // Truncates like a shell's `>`. No effect on cgroupfs; makes plain files in tests behave the same.
      ftruncateSync(descriptor);
      return descriptor;
    } catch (error) {
      closeSync(descriptor);
      throw error;
    }
  }

  /** Reads verify each cgroup once, since they change nothing: ContainerStatus reads four files each time. */
  #assertInsideOnce(descriptor: number, path: string, cgroup: CgroupPath): void {
    if (this.#inside.has(cgroup)) return;
    this.#assertInside(descriptor, path);
    if (this.#inside.size >= MOST_KNOWN_INSIDE) this.#inside.clear();
    this.#inside.add(cgroup);
  }

  /** Verifies that the descriptor is at the expected path. cgroupfs has no symlinks, but the path to it may. */
  #assertInside(descriptor: number, path: string): void {
    this.#rootLink ??= linkOfFolder(this.root);
    const expected = join(this.#rootLink, path.slice(this.root.length));
    const found = readlinkSync(`/proc/self/fd/${descriptor}`);
    if (found === `${expected} (deleted)`) throw Object.assign(new Error('removed'), { code: 'ENODEV' });
    if (found !== expected) throw Object.assign(new Error(`leads to ${found}`), { code: 'ELOOP' });
  }

  #readError(error: unknown, cgroup: CgroupPath, path: string): ShimError {
    if (this.#gone(error, cgroup)) return vanished(path, errnoOf(error), error);
    return unavailable(path, errnoOf(error), `cannot be read: ${messageOf(error)}`, error);
  }

  #writeError(error: unknown, cgroup: CgroupPath, path: string, asked: string): ShimError {
    if (this.#gone(error, cgroup)) return vanished(path, errnoOf(error), error, asked);
    const errno = errnoOf(error);
    return writeFailed(path, asked, messageOf(error), { code: codeOf(errno), errno, cause: error });
  }

  #gone(error: unknown, cgroup: CgroupPath): boolean {
    const errno = errnoOf(error);
    return errno === 'ENODEV' || (errno === 'ENOENT' && !this.exists(cgroup));
  }
}

/** Maps an errno to a code. EBUSY: hugepage limit below usage (kernel mm/page_counter.c, page_counter_set_max). */
function codeOf(errno: string | undefined): Code {
  if (errno === 'EINVAL' || errno === 'ERANGE') return Code.INVALID_ARGUMENT;
  return errno === 'EBUSY' ? Code.FAILED_PRECONDITION : Code.INTERNAL;
}

/** Creates the error for a value that the kernel rejected, or that differs after the write. */
export function writeFailed(
  path: string,
  asked: string,
  why: string,
  more: { code?: Code; errno?: string | undefined; found?: string; cause?: unknown } = {},
): ShimError {
  return new ShimError(
    more.code ?? Code.INTERNAL,
    Reason.CGROUP_WRITE_FAILED,
    `${path}: writing ${JSON.stringify(asked)}: ${why}`,
    { file: path, asked, ...defined({ errno: more.errno, found: more.found }) },
    { cause: more.cause },
  );
}

/** Whether a value was written, but another process has overwritten it since. */
export const isOverwritten = (error: unknown): boolean =>
  error instanceof ShimError && error.reason === Reason.CGROUP_WRITE_FAILED && error.context.found !== undefined;

function unavailable(path: string, errno: string | undefined, why: string, cause?: unknown): ShimError {
  const context = { file: path, ...defined({ errno }) };
  return new ShimError(Code.FAILED_PRECONDITION, Reason.CGROUP_UNAVAILABLE, `${path} ${why}`, context, { cause });
}

function vanished(path: string, errno: string | undefined, cause: unknown, asked?: string): CgroupVanished {
  const context = { file: path, ...defined({ errno, asked }) };
  const message = `${path}: the cgroup no longer exists`;
  return new CgroupVanished(Code.FAILED_PRECONDITION, Reason.CGROUP_UNAVAILABLE, message, context, { cause });
}

type Defined<Shape> = { [Key in keyof Shape]?: Exclude<Shape[Key], undefined> };

function defined<Shape extends Record<string, string | undefined>>(shape: Shape): Defined<Shape> {
  return Object.fromEntries(Object.entries(shape).filter(([, value]) => value !== undefined)) as Defined<Shape>;
}

function linkOfFolder(folder: string): string {
  const descriptor = openSync(folder, O_PATH);
  try {
    return readlinkSync(`/proc/self/fd/${descriptor}`);
  } finally {
    closeSync(descriptor);
  }
}

const readInPool = promisify(read);
const writeInPool = promisify(write) as (descriptor: number, text: string) => Promise<{ bytesWritten: number }>;

function assertWhole(bytesWritten: number, value: string): void {
  if (bytesWritten !== Buffer.byteLength(value)) throw new Error(`only ${bytesWritten} bytes were written`);
}

/** Read buffer size in bytes, several times the size of memory.stat. */
const LONG_FILE = 16_384;

/** Returns a file's content without the last newline. One read(2) returns a whole kernel file if it fits. */
async function readTextInPool(descriptor: number): Promise<string> {
  const chunk = Buffer.allocUnsafe(LONG_FILE);
  const { bytesRead } = await readInPool(descriptor, chunk, 0, chunk.length, 0);
  const text = bytesRead === chunk.length ? readFileSync(descriptor, 'utf8') : chunk.toString('utf8', 0, bytesRead);
  return text.replace(/\n$/, '');
}
