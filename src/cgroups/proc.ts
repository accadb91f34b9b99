/** What the kernel says about the cgroup of a process, and about the version of cgroups that a node has. */
import { readFileSync } from 'node:fs';
import { access, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { Code, Reason, ShimError, errnoOf, messageOf } from '../core/errors/index.ts';
import { CGROUP_ROOT } from './file.ts';
import type { CgroupPath } from './file.ts';

/** CGROUP2_SUPER_MAGIC of linux/magic.h. */
const CGROUP2_MAGIC = 0x63677270;

/**
 * The cgroup v2 path in the content of /proc/<pid>/cgroup: its line `0::/path`, whatever lines of v1 hierarchies stand
 * beside it. Undefined when there is none, or when that cgroup has been removed under a dead process.
 */
export function parseProcCgroup(text: string): CgroupPath | undefined {
  const path = text
    .split('\n')
    .find((line) => line.startsWith('0::/'))
    ?.slice('0::'.length);
  return path === undefined || path.endsWith(' (deleted)') ? undefined : path;
}

/**
 * The cgroup that a process is in, or undefined when there is no such process (any more) or it is in none of version 2.
 * Throws CGROUP_UNAVAILABLE when /proc cannot be read. Reads at once: the kernel has it at hand, and the way through the thread
 * pool takes far longer.
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

/**
 * The version of cgroups mounted at a root: 2 when it is cgroup2 itself, 1 for version 1 and for the hybrid layout (whose
 * limits are those of version 1), undefined when nothing is there.
 */
export async function cgroupVersion(root = CGROUP_ROOT): Promise<1 | 2 | undefined> {
  const [fileSystem, controllers] = await Promise.all([
    statfs(root).catch(() => undefined),
    access(join(root, 'cgroup.controllers')).then(
      () => true,
      () => false,
    ),
  ]);
  if (fileSystem === undefined) return undefined;
  return fileSystem.type === CGROUP2_MAGIC || controllers ? 2 : 1;
}
