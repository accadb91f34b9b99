/** The kernel's newer mount calls (Linux 5.2), which change one option of a file system and nothing else. */
import { closeSync, readSync } from 'node:fs';
import { messageOf, nameOfErrno } from '../core/index.ts';

// The numbers are the same on every architecture (include/uapi/asm-generic/unistd.h).
const SYS_FSCONFIG = 431;
const SYS_FSPICK = 433;
// linux/mount.h
const FSPICK_CLOEXEC = 0x1;
const FSPICK_EMPTY_PATH = 0x8;
const FSCONFIG_SET_FLAG = 0;
const FSCONFIG_SET_STRING = 1;
const FSCONFIG_CMD_RECONFIGURE = 7;

/** The error of a rejected system call, with the kernel's explanation. */
export class SyscallError extends Error {
  constructor(
    readonly call: string,
    /** The kernel's name of the error: EINVAL. */
    readonly code: string,
    readonly explanation: string,
  ) {
    super(`${call}: ${code}${explanation === '' ? '' : `: ${explanation}`}`);
  }
}

export interface MountCalls {
  /**
   * Sets one option of a file system, given a descriptor of a mount's root. On failure, changes nothing and throws
   * {@link SyscallError}.
   * @param repeated options without a value that the file system has and that the kernel expects again
   */
  reconfigure(descriptor: number, key: string, value: string, repeated: readonly string[]): void;
}

type Fspick = (number: number, descriptor: number, path: string, flags: number) => number;
type Fsconfig = (
  number: number,
  descriptor: number,
  command: number,
  key: string | null,
  value: string | null,
  aux: number,
) => number;

/** Returns the calls, or why this machine lacks them (koffi not available, old kernel, seccomp filter, not root). */
export async function loadMountCalls(): Promise<MountCalls | { readonly unavailable: string }> {
  try {
    const { default: koffi } = await import('koffi');
    const libc = koffi.load(null);
    const fspick = libc.func('syscall', 'long', ['long', 'int', 'str', 'uint']) as Fspick;
    const fsconfig = libc.func('syscall', 'long', ['long', 'int', 'uint', 'str', 'str', 'int']) as Fsconfig;
    const checked = (call: string, result: number, context?: number): number => {
      if (result >= 0) return result;
      const errno = nameOfErrno(koffi.errno());
      throw new SyscallError(call, errno, context === undefined ? '' : explanationOf(context));
    };
    const pick = (descriptor: number): number =>
      checked('fspick', fspick(SYS_FSPICK, descriptor, '', FSPICK_EMPTY_PATH | FSPICK_CLOEXEC));

    const missing = whyMissing(pick);
    if (missing !== undefined) return { unavailable: missing };
    return {
      reconfigure(descriptor, key, value, repeated) {
        const context = pick(descriptor);
        try {
          for (const flag of repeated)
            checked(`fsconfig ${flag}`, fsconfig(SYS_FSCONFIG, context, FSCONFIG_SET_FLAG, flag, null, 0), context);
          checked(`fsconfig ${key}`, fsconfig(SYS_FSCONFIG, context, FSCONFIG_SET_STRING, key, value, 0), context);
          checked('fsconfig', fsconfig(SYS_FSCONFIG, context, FSCONFIG_CMD_RECONFIGURE, null, null, 0), context);
        } finally {
          closeSync(context);
        }
      },
    };
  } catch (error) {
    return { unavailable: messageOf(error) };
  }
}

/** Returns why a call is unavailable. If the kernel supports and permits it, it reports -1 as a bad descriptor. */
function whyMissing(pick: (descriptor: number) => number): string | undefined {
  try {
    closeSync(pick(-1));
    return 'fspick took a descriptor that is none';
  } catch (error) {
    return error instanceof SyscallError && error.code === 'EBADF' ? undefined : messageOf(error);
  }
}

/** Reads the kernel's messages from the context: `e tmpfs: Too small a size for current use`. */
function explanationOf(context: number): string {
  try {
    const message = Buffer.alloc(512);
    return message.toString('utf8', 0, readSync(context, message)).trim();
  } catch {
    return ''; // ENODATA: it left none
  }
}
