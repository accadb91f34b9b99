/** System calls on another process, which Node does not offer. */
import { nameOfErrno } from '../core/index.ts';

// The numbers are the same on every architecture (include/uapi/asm-generic/unistd.h).
const SYS_PIDFD_OPEN = 434;
const SYS_PIDFD_GETFD = 438;
// asm-generic/ioctls.h and asm-generic/resource.h
const FIONREAD = 0x541b;
const RLIMIT_NOFILE = 7;

export interface ProcessCalls {
  /** Returns a descriptor for a process (pidfd_open(2), Linux 5.3). All methods throw the kernel's error. */
  open(pid: number): number;
  /** Returns a duplicate of a descriptor of that process (pidfd_getfd(2), Linux 5.6). */
  duplicate(processDescriptor: number, descriptor: number): number;
  /** Returns the path that the peer of a connected unix socket is bound to; empty if the peer has no path. */
  peerPath(descriptor: number): string;
  /** Returns how many bytes can be read from a socket or a pipe. */
  pending(descriptor: number): number;
  /**
   * Sets the number of descriptors that a process may open. Open descriptors stay open. Returns the previous limit. A
   * previous limit of 0 comes from a drain that was killed; the hard limit is returned instead.
   */
  limitDescriptors(pid: number, limit: bigint): bigint;
}

type PidfdOpen = (number: number, pid: number, flags: number) => number;
type PidfdGetfd = (number: number, pidfd: number, descriptor: number, flags: number) => number;
type Ioctl = (descriptor: number, request: number, value: Buffer) => number;
type Getpeername = (descriptor: number, address: Buffer, length: Buffer) => number;
type Prlimit = (pid: number, resource: number, fresh: Buffer | null, old: Buffer | null) => number;

/** Rejects without koffi. */
export async function loadProcessCalls(): Promise<ProcessCalls> {
  const { default: koffi } = await import('koffi');
  const libc = koffi.load(null);
  const pidfdOpen = libc.func('syscall', 'long', ['long', 'int', 'uint']) as PidfdOpen;
  const pidfdGetfd = libc.func('syscall', 'long', ['long', 'int', 'int', 'uint']) as PidfdGetfd;
  const ioctl = libc.func('ioctl', 'int', ['int', 'ulong', 'void *']) as Ioctl;
  const getpeername = libc.func('getpeername', 'int', ['int', 'void *', 'void *']) as Getpeername;
  const prlimit = libc.func('prlimit', 'int', ['int', 'int', 'void *', 'void *']) as Prlimit;
  const checked = (call: string, result: number): number => {
    if (result >= 0) return result;
    throw new Error(`${call}: ${nameOfErrno(koffi.errno())}`);
  };
  return {
    open: (pid) => checked('pidfd_open', pidfdOpen(SYS_PIDFD_OPEN, pid, 0)),
    duplicate: (process, descriptor) => checked('pidfd_getfd', pidfdGetfd(SYS_PIDFD_GETFD, process, descriptor, 0)),
    peerPath: (descriptor) =>
      pathOf((address, length) => checked('getpeername', getpeername(descriptor, address, length))),
    pending(descriptor) {
      const value = Buffer.alloc(4);
      checked('ioctl FIONREAD', ioctl(descriptor, FIONREAD, value));
      return new Int32Array(value.buffer, value.byteOffset, 1)[0] ?? 0;
    },
    limitDescriptors(pid, limit) {
      // struct rlimit: the soft limit, then the hard one, which stays.
      const limits = Buffer.alloc(16);
      checked('prlimit', prlimit(pid, RLIMIT_NOFILE, null, limits));
      const words = new BigUint64Array(limits.buffer, limits.byteOffset, 2);
      const [soft = 0n, hard = 0n] = words;
      words[0] = limit;
      checked('prlimit', prlimit(pid, RLIMIT_NOFILE, limits, null));
      return soft === 0n ? hard : soft;
    },
  };
}

/** struct sockaddr_un: the family, then the path. */
const ADDRESS_BYTES = 110;
const FAMILY_BYTES = 2;

function pathOf(read: (address: Buffer, length: Buffer) => number): string {
  const [address, length] = [Buffer.alloc(ADDRESS_BYTES), Buffer.alloc(4)];
  const size = new Uint32Array(length.buffer, length.byteOffset, 1);
  size[0] = ADDRESS_BYTES;
  read(address, length);
  const path = address.subarray(FAMILY_BYTES, size[0]);
  const end = path.indexOf(0);
  return path.toString('utf8', 0, end === -1 ? path.length : end);
}
