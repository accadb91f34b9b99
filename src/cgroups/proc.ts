/** Reads /proc (the cgroup of a process, sizes of the node's memory), and determines the node's cgroup version. */
import { existsSync, readFileSync, statfsSync } from 'node:fs';
import { join } from 'node:path';
import { Code, errnoOf, KiB, messageOf, Reason, ShimError } from '../core/index.ts';
import { CGROUP_ROOT, type CgroupPath } from './file.ts';

/** CGROUP2_SUPER_MAGIC of linux/magic.h. */
const CGROUP2_MAGIC = 0x63677270;

/**
 * Returns the cgroup v2 path from the content of /proc/<pid>/cgroup: its line `0::/path`; other lines are of v1
 * hierarchies. Undefined if there is no such line, or if the cgroup of a dead process was removed.
 */
export function parseProcCgroup(text: string): CgroupPath | undefined {
  const path = text
    .split('\n')
    .find((line) => line.startsWith('0::/'))
    ?.slice('0::'.length);
  return path === undefined || path.endsWith(' (deleted)') ? undefined : path;
}

/**
 * Returns the cgroup of a process; undefined if the process does not exist or has no cgroup v2 path. Throws
 * CGROUP_UNAVAILABLE if /proc cannot be read. Reads synchronously: the kernel answers from memory, and the thread pool
 * takes far longer.
 */
export function cgroupOfPid(pid: number, procRoot = '/proc'): Promise<CgroupPath | undefined> {
  return new Promise((resolve) => resolve(cgroupNow(pid, procRoot)));
}

function cgroupNow(pid: number, procRoot: string): CgroupPath | undefined {
  const file = join(procRoot, String(pid), 'cgroup');
  try {
    return parseProcCgroup(readFileSync(file, 'utf8'));
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === 'ENOENT' || errno === 'ESRCH') return undefined;
    const context = { file, ...(errno === undefined ? {} : { errno }) };
    const message = `${file} cannot be read: ${messageOf(error)}`;
    throw new ShimError(Code.FAILED_PRECONDITION, Reason.CGROUP_UNAVAILABLE, message, context, { cause: error });
  }
}

/** Returns the content of a file of /proc, or an empty string if the file cannot be read. */
export function procText(procRoot: string, file: string): string {
  try {
    return readFileSync(join(procRoot, file), 'utf8');
  } catch {
    return '';
  }
}

/** Returns a /proc/meminfo size in bytes (proc_meminfo(5): units of 1024 bytes). Undefined if it is missing. */
export function meminfoSize(procRoot: string, name: 'MemTotal' | 'SwapFree'): number | undefined {
  const [, kibibytes] = new RegExp(`^${name}:\\s+(\\d{1,12}) kB$`, 'm').exec(procText(procRoot, 'meminfo')) ?? [];
  return kibibytes === undefined ? undefined : Number(kibibytes) * KiB;
}

/**
 * Returns the cgroup version mounted at a root: 2 for cgroup2, 1 for version 1 and for the hybrid layout (whose limits
 * are those of version 1), undefined if nothing is mounted.
 */
export function cgroupVersion(root = CGROUP_ROOT): 1 | 2 | undefined {
  try {
    const isCgroup2 = statfsSync(root).type === CGROUP2_MAGIC || existsSync(join(root, 'cgroup.controllers'));
    return isCgroup2 ? 2 : 1;
  } catch {
    return undefined;
  }
}
