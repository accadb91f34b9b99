import { readdirSync, readlinkSync } from 'node:fs';

/** Returns how many descriptors a process has open, without cgroup files: a shim keeps up to 512 of these open. */
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
