import { readFileSync } from 'node:fs';
import { type Bytes, bytes } from './numbers.ts';

/** getauxval(3): the type of the entry with the page size. */
const AT_PAGESZ = 6n;
/** Two unsigned longs: type and value. x86-64 and arm64 are little-endian. */
const ENTRY_BYTES = 16;

/** Returns the page size in the auxiliary vector of a process (proc_pid_auxv(5)). Throws if it has none. */
export function pageSizeIn(auxv: Buffer): Bytes {
  for (let at = 0; at + ENTRY_BYTES <= auxv.length; at += ENTRY_BYTES) {
    if (auxv.readBigUInt64LE(at) === AT_PAGESZ) return bytes(Number(auxv.readBigUInt64LE(at + ENTRY_BYTES / 2)));
  }
  throw new Error('/proc/self/auxv has no AT_PAGESZ');
}

/**
 * Returns the page size of this machine. Returns 4 KiB, that of most machines, if the file cannot be read: the module
 * must load for kubectl's plugin on any system.
 */
export function readPageSize(auxvFile = '/proc/self/auxv'): Bytes {
  try {
    return pageSizeIn(readFileSync(auxvFile));
  } catch {
    // With larger pages, a size may seem changed when it is not: one needless write.
    return bytes(4096);
  }
}

/**
 * The page size of the kernel: 4 KiB on most machines, and 16 or 64 KiB on some arm64 kernels. The kernel rounds the
 * size of a tmpfs up to whole pages, and a memory limit down.
 */
export const PAGE_SIZE = readPageSize();
