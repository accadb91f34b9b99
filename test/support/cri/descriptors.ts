import { readdirSync, readlinkSync } from 'node:fs';

/** Returns the number of a process's open descriptors, without those of cgroup files: a shim keeps up to 512 of these open. */
export function descriptorsOf(pid: number, cgroupRoot = '/sys/fs/cgroup'): number {
  const folder = `/proc/${pid}/fd`;
  return readdirSync(folder).filter((descriptor) => !leadsBelow(`${folder}/${descriptor}`, cgroupRoot)).length;
}

function leadsBelow(link: string, root: string): boolean {
  try {
    return readlinkSync(link).startsWith(`${root}/`);
  } catch {
    // Closed meanwhile.
    return false;
  }
}
