/**
 * The only place where a file of a cgroup is opened. Every path stays inside the root, nothing is ever created, and an
 * error says which file, which value and what the kernel said.
 */
import {
  closeSync,
  constants,
  ftruncateSync,
  openSync,
  read,
  readFileSync,
  readSync,
  readdirSync,
  readlinkSync,
  statSync,
  statfsSync,
  write,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Code, Reason, ShimError, errnoOf, messageOf } from '../core/errors/index.ts';
import { bytes } from '../core/quantities/index.ts';
import type { Bytes } from '../core/quantities/index.ts';

/** A cgroup as the kernel names it: absolute, from the root of the cgroup file system. `/kubepods/burstable/pod1`. */
export type CgroupPath = string;

export const CGROUP_ROOT = '/sys/fs/cgroup';

const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY } = constants;
// Linux's O_PATH, which Node does not name: a descriptor that only stands for the place.
const O_PATH = 0o10000000;

/** The cgroup was there by its name and is not any more: its pod or container has ended. */
export class CgroupVanished extends ShimError {}

/** Whether an error says that the cgroup itself is gone, not that one of its files is missing or refused. */
export function isCgroupVanished(error: unknown): error is CgroupVanished {
  return error instanceof CgroupVanished;
}

/** Whether the cgroup is there, but this file of it is not: the controller is not enabled, or the kernel is too old. */
export function isFileMissing(error: unknown): boolean {
  return error instanceof ShimError && error.context.errno === 'ENOENT' && !isCgroupVanished(error);
}

/** Where a cgroup's folder lies. Throws CGROUP_UNAVAILABLE when the path could leave the root: relative, or with `..`. */
export function cgroupFolder(root: string, cgroup: CgroupPath): string {
  if (!cgroup.startsWith('/') || cgroup.includes('\0') || cgroup.split('/').includes('..')) {
    throw unavailable(cgroup, 'EINVAL', 'is not a path of a cgroup');
  }
  return cgroup === '/' ? root : `${root}${cgroup}`;
}

/** Where a file of a cgroup lies. Throws CGROUP_UNAVAILABLE as {@link cgroupFolder}, and when `file` is more than a name. */
export function cgroupFilePath(root: string, cgroup: CgroupPath, file: string): string {
  const folder = cgroupFolder(root, cgroup);
  if (!/^[a-z_][a-z0-9_.]*$/i.test(file)) throw unavailable(`${folder}/${file}`, 'EINVAL', 'is not a file of a cgroup');
  return `${folder}/${file}`;
}

/** More than a node has containers. */
const MOST_KNOWN_INSIDE = 4096;
/** Longer than any file that is read at once: one number, or two. */
const scratch = Buffer.alloc(4096);

export class CgroupFiles {
  #rootLink: string | undefined;
  #pageSize: Bytes | undefined;
  /** cgroups of which a file was found to be where its name says. */
  readonly #inside = new Set<CgroupPath>();

  /** `root` is where cgroup v2 is mounted. */
  constructor(readonly root: string = CGROUP_ROOT) {}

  /** The size of a page on this machine: what cgroup2 calls its block size. */
  get pageSize(): Bytes {
    this.#pageSize ??= bytes(statfsSync(this.root).bsize);
    return this.#pageSize;
  }

  /** Whether the cgroup exists. */
  exists(cgroup: CgroupPath): boolean {
    const folder = cgroupFolder(this.root, cgroup);
    return statSync(folder, { throwIfNoEntry: false })?.isDirectory() ?? false;
  }

  /** The names of the cgroups right beneath this one. Throws CGROUP_UNAVAILABLE, as {@link CgroupVanished} when it is gone. */
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
   * A file's content, without the last newline, read on this thread. For files that the kernel answers out of a
   * variable (memory.max, cpu.max, cpu.weight: microseconds), so that a reader never waits behind blocked writers in
   * the thread pool. Throws CGROUP_UNAVAILABLE, as {@link CgroupVanished} when the cgroup is gone.
   */
  readNow(cgroup: CgroupPath, file: string): string {
    const path = cgroupFilePath(this.root, cgroup, file);
    let descriptor: number | undefined;
    try {
      descriptor = openSync(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
      this.#assertInsideOnce(descriptor, path, cgroup);
      return readText(descriptor);
    } catch (error) {
      this.#inside.delete(cgroup);
      throw this.#readError(error, cgroup, path);
    } finally {
      if (descriptor !== undefined) closeSync(descriptor);
    }
  }

  /**
   * The same, with the reading in the thread pool: for files that cost the kernel some work (memory.stat is summed up). Opening
   * and closing cost it nothing, and each way through the pool more than both.
   */
  async read(cgroup: CgroupPath, file: string): Promise<string> {
    const path = cgroupFilePath(this.root, cgroup, file);
    let descriptor: number | undefined;
    try {
      descriptor = openSync(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
      this.#assertInside(descriptor, path);
      return await readTextInPool(descriptor);
    } catch (error) {
      throw this.#readError(error, cgroup, path);
    } finally {
      if (descriptor !== undefined) closeSync(descriptor);
    }
  }

  /**
   * Writes one value with one write(2). Never creates: a missing file says ENOENT (an attempt to create one in cgroupfs
   * would say EACCES).
   *
   * The file is opened with O_NONBLOCK. From Linux 6.16 on this keeps a write to memory.max or memory.high from
   * reclaiming, and killing, before it returns (Documentation/admin-guide/cgroup-v2.rst): the limit is set at once and
   * enforced at the next charge. Older kernels ignore the flag, and the write then holds a thread of the pool for as
   * long as reclaim takes.
   *
   * Throws CGROUP_WRITE_FAILED (INVALID_ARGUMENT when the kernel finds the value wrong: EINVAL, ERANGE), or
   * {@link CgroupVanished}.
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

  /** The same on this thread, for a value that costs the kernel nothing: a way through the pool takes longer than that. */
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
    const descriptor = openSync(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK);
    try {
      this.#assertInside(descriptor, path);
      // As a shell's `>` does. To cgroupfs it is nothing; a plain folder in its place then behaves like it.
      ftruncateSync(descriptor);
      return descriptor;
    } catch (error) {
      closeSync(descriptor);
      throw error;
    }
  }

  /** For reading, which changes nothing, one look at a cgroup is enough: ContainerStatus reads four files of it each time. */
  #assertInsideOnce(descriptor: number, path: string, cgroup: CgroupPath): void {
    if (this.#inside.has(cgroup)) return;
    this.#assertInside(descriptor, path);
    if (this.#inside.size >= MOST_KNOWN_INSIDE) this.#inside.clear();
    this.#inside.add(cgroup);
  }

  /** cgroupfs has no symbolic links; should one be on the way all the same, the descriptor is not where its name says. */
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
    const code = errno === 'EINVAL' || errno === 'ERANGE' ? Code.INVALID_ARGUMENT : Code.INTERNAL;
    return writeFailed(path, asked, messageOf(error), { code, errno, cause: error });
  }

  #gone(error: unknown, cgroup: CgroupPath): boolean {
    const errno = errnoOf(error);
    return errno === 'ENODEV' || (errno === 'ENOENT' && !this.exists(cgroup));
  }
}

/** The kernel refused a value, or has another one after the write. */
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

function unavailable(path: string, errno: string | undefined, why: string, cause?: unknown): ShimError {
  const context = { file: path, ...defined({ errno }) };
  return new ShimError(Code.FAILED_PRECONDITION, Reason.CGROUP_UNAVAILABLE, `${path} ${why}`, context, { cause });
}

function vanished(path: string, errno: string | undefined, cause: unknown, asked?: string): CgroupVanished {
  const context = { file: path, ...defined({ errno, asked }) };
  const message = `${path}: the cgroup is gone`;
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
  if (bytesWritten !== Buffer.byteLength(value)) throw new Error(`only ${bytesWritten} bytes were taken`);
}

/** Several times what memory.stat has. */
const LONG_FILE = 16_384;

/** A file's content, without the last newline: a kernel file that fits comes whole with the first read(2). */
async function readTextInPool(descriptor: number): Promise<string> {
  const chunk = Buffer.allocUnsafe(LONG_FILE);
  const { bytesRead } = await readInPool(descriptor, chunk, 0, chunk.length, 0);
  const text = bytesRead === chunk.length ? readFileSync(descriptor, 'utf8') : chunk.toString('utf8', 0, bytesRead);
  return text.replace(/\n$/, '');
}

/** A short file's content, without the last newline, by one read(2) if it fits. */
function readText(descriptor: number): string {
  const size = readSync(descriptor, scratch, 0, scratch.length, 0);
  if (size === scratch.length) return readFileSync(descriptor, 'utf8').replace(/\n$/, '');
  return scratch.toString('utf8', 0, size > 0 && scratch[size - 1] === 0x0a ? size - 1 : size);
}
