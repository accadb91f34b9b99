/** Two ways to give an opened tmpfs a new size. Nothing in this project but these remounts. */
import { crashPoint } from '../core/crash-points/index.ts';
import { Code, Reason, ShimError, messageOf } from '../core/errors/index.ts';
import { contextOf } from './folder.ts';
import type { KubeletPlace, OpenVolume } from './folder.ts';
import { SyscallError, loadMountCalls } from './syscalls.ts';
import type { MountCalls } from './syscalls.ts';
import type { VolumeName } from './volumes.ts';
import type { Bytes } from '../core/quantities/index.ts';

/** `syscalls`: fspick and fsconfig. `mount`: mount(8), where they are not to be had, and the reason. */
export type RemountMethod =
  | { readonly kind: 'syscalls'; readonly calls: MountCalls }
  | { readonly kind: 'mount'; readonly because: string };

/** The way that this machine offers. Decided once, by trying. */
export async function chooseRemountMethod(): Promise<RemountMethod> {
  const calls = await loadMountCalls();
  return 'unavailable' in calls ? { kind: 'mount', because: calls.unavailable } : { kind: 'syscalls', calls };
}

/** The kernel stores more in it than the size asked for. */
export const isTooSmall = (error: unknown): boolean =>
  error instanceof ShimError && error.reason === Reason.REMOUNT_FAILED && error.context.errno === 'EINVAL';

/**
 * Sets the size of the superblock, and no other option or flag. Throws REMOUNT_FAILED with the kernel's errno: EINVAL when
 * the files need more.
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
        method.calls.reconfigure(open.descriptor, 'size', String(size));
        return;
      } catch (error) {
        throw failed(volume, size, messageOf(error), error instanceof SyscallError ? error.code : undefined, error);
      }
    case 'mount':
      return remountByCommand(place, volume, open, size);
  }
}

const MOUNT_FLAGS = new Set(['ro', 'nosuid', 'nodev', 'noexec', 'nosymfollow', 'noatime', 'nodiratime', 'relatime']);
const SUPERBLOCK_FLAGS = new Set(['sync', 'dirsync', 'mand', 'lazytime']);

/**
 * mount(8) on the descriptor's own path, which cannot be led elsewhere. Since that path is in no table of mounts, mount(8)
 * cannot know the flags that are set, and mount(2) resets what is not repeated: so they are repeated here.
 */
async function remountByCommand(
  place: KubeletPlace,
  volume: VolumeName,
  { descriptor, mount }: OpenVolume,
  size: Bytes,
): Promise<void> {
  if (place.throughPid !== undefined) {
    throw failed(volume, size, 'mount(8) cannot reach into another mount namespace, and fspick is not to be had');
  }
  // One flag stands for the mount point and the file system here; where the two differ, one would be changed.
  if (mount.mountOptions.includes('ro') !== mount.superOptions.includes('ro')) {
    throw failed(
      volume,
      size,
      'its mount point is read-only and the file system is not: only fspick can tell them apart',
    );
  }
  const flags = [
    ...mount.mountOptions.filter((option) => MOUNT_FLAGS.has(option)),
    ...mount.superOptions.filter((option) => SUPERBLOCK_FLAGS.has(option)),
  ];
  const options = ['remount', ...flags, `size=${size}`].join(',');
  const folder = `/proc/${process.pid}/fd/${descriptor}`;
  const { ExecaError, execa } = await import('execa');
  const command = ['--no-canonicalize', '-t', 'tmpfs', '-o', options, mount.source, folder];
  try {
    await execa('mount', command, { timeout: 10_000, env: { LC_ALL: 'C' } });
  } catch (error) {
    if (!(error instanceof ExecaError)) throw error;
    const said = String(error.stderr).trim();
    // mount(8) has words for EINVAL, and passes no errno on.
    const errno = /\bbad option\b/.test(said) ? 'EINVAL' : undefined;
    throw failed(volume, size, said === '' ? error.shortMessage : said, errno, error);
  }
}

export function failed(volume: VolumeName, size: Bytes, why: string, errno?: string, cause?: unknown): ShimError {
  const message = `volume ${volume.name} of pod ${volume.podUid}: setting its size to ${size}: ${why}`;
  const context = { ...contextOf(volume), asked: String(size), ...(errno === undefined ? {} : { errno }) };
  return new ShimError(Code.INTERNAL, Reason.REMOUNT_FAILED, message, context, { cause });
}
