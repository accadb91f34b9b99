/** Two ways to resize an opened tmpfs. No other code remounts. */
import { type Bytes, Code, crashPoint, messageOf, Reason, ShimError } from '../core/index.ts';
import { contextOf, type KubeletPlace, type OpenVolume } from './folder.ts';
import { loadMountCalls, type MountCalls, SyscallError } from './syscalls.ts';
import type { VolumeName } from './volumes.ts';

/** `syscalls`: fspick and fsconfig. `mount`: mount(8), with the reason why the system calls are unavailable. */
export type RemountMethod =
  | { readonly kind: 'syscalls'; readonly calls: MountCalls }
  | { readonly kind: 'mount'; readonly because: string };

/** Returns the method that works on this machine, by trying the system calls. */
export async function chooseRemountMethod(): Promise<RemountMethod> {
  const calls = await loadMountCalls();
  return 'unavailable' in calls ? { kind: 'mount', because: calls.unavailable } : { kind: 'syscalls', calls };
}

/**
 * Whether a remount failed because the volume stores more than the new size: EINVAL (KEP-6030; kernel mm/shmem.c,
 * shmem_reconfigure).
 */
export const isTooSmall = (error: unknown): boolean =>
  error instanceof ShimError && error.reason === Reason.REMOUNT_FAILED && error.context.errno === 'EINVAL';

/**
 * Sets the size of the superblock and no other option or flag. Throws REMOUNT_FAILED with the kernel's errno, which is
 * EINVAL if the files need more.
 */
export async function setSize(
  method: RemountMethod,
  place: KubeletPlace,
  volume: VolumeName,
  open: OpenVolume,
  size: Bytes,
): Promise<void> {
  crashPoint('remount-before');
  await reconfigure(method, place, volume, open, size);
  crashPoint('remount-after');
}

async function reconfigure(
  method: RemountMethod,
  place: KubeletPlace,
  volume: VolumeName,
  open: OpenVolume,
  size: Bytes,
): Promise<void> {
  switch (method.kind) {
    case 'syscalls':
      try {
        method.calls.reconfigure(open.descriptor, 'size', String(size), repeatedOptions(open));
        return;
      } catch (error) {
        throw failed(volume, size, messageOf(error), error instanceof SyscallError ? error.code : undefined, error);
      }
    case 'mount':
      return remountByCommand(place, volume, open, size);
  }
}

/**
 * Returns the options that a remount has to repeat. Linux 6.4 to 6.16 and the first releases of 6.6 and 6.12 reject a
 * remount without noswap of a tmpfs with noswap (kernel mm/shmem.c, shmem_reconfigure: "Cannot enable swap on remount
 * if it was disabled on first mount"). kubelet mounts its volumes with noswap if the kernel supports it.
 */
const repeatedOptions = ({ mount }: OpenVolume): readonly string[] =>
  mount.superOptions.filter((option) => option === 'noswap');

const MOUNT_FLAGS = new Set(['ro', 'nosuid', 'nodev', 'noexec', 'nosymfollow', 'noatime', 'nodiratime', 'relatime']);
const SUPERBLOCK_FLAGS = new Set(['sync', 'dirsync', 'mand', 'lazytime']);

/**
 * Runs mount(8) on the descriptor's path, which cannot be redirected. mount(8) does not find that path in a mount table
 * and so does not know the current flags. mount(2) resets flags that are not given, so this passes all of them.
 */
async function remountByCommand(
  place: KubeletPlace,
  volume: VolumeName,
  { descriptor, mount }: OpenVolume,
  size: Bytes,
): Promise<void> {
  if (place.throughPid !== undefined) {
    throw failed(volume, size, 'mount(8) cannot access another mount namespace, and fspick is not available');
  }
  // mount(8) has one flag for the mount and the file system. If the two differ, it would change one of them.
  if (mount.mountOptions.includes('ro') !== mount.superOptions.includes('ro')) {
    throw failed(
      volume,
      size,
      'either its mount or its file system is read-only, not both: only fspick can distinguish them',
    );
  }
  const flags = [
    ...mount.mountOptions.filter((option) => MOUNT_FLAGS.has(option)),
    ...mount.superOptions.filter((option) => SUPERBLOCK_FLAGS.has(option)),
  ];
  const options = ['remount', ...flags, ...repeatedOptions({ descriptor, mount }), `size=${size}`].join(',');
  const folder = `/proc/${process.pid}/fd/${descriptor}`;
  const { ExecaError, execa } = await import('execa');
  const command = ['--no-canonicalize', '-t', 'tmpfs', '-o', options, mount.source, folder];
  try {
    await execa('mount', command, { timeout: 10_000, env: { LC_ALL: 'C' } });
  } catch (error) {
    if (!(error instanceof ExecaError)) throw error;
    const said = String(error.stderr).trim();
    // mount(8) prints a text for EINVAL and does not report the errno.
    const errno = /\bbad option\b/.test(said) ? 'EINVAL' : undefined;
    throw failed(volume, size, said === '' ? error.shortMessage : said, errno, error);
  }
}

/** Returns REMOUNT_FAILED for a volume whose size could not be set. */
export function failed(volume: VolumeName, size: Bytes, why: string, errno?: string, cause?: unknown): ShimError {
  const message = `volume ${volume.name} of pod ${volume.podUid}: setting its size to ${size}: ${why}`;
  const context = { ...contextOf(volume), asked: String(size), ...(errno === undefined ? {} : { errno }) };
  return new ShimError(Code.INTERNAL, Reason.REMOUNT_FAILED, message, context, { cause });
}
