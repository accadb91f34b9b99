/**
 * A volume's folder, opened so that it cannot be exchanged any more: from the kubelet root down, one name at a time, no
 * symbolic link followed. Everything is then asked of, and done to, the descriptor.
 */
import { closeSync, constants, fstatSync, openSync, readFileSync, realpathSync, statfsSync } from 'node:fs';
import { Code, Reason, ShimError, errnoOf, messageOf } from '../core/errors/index.ts';
import type { ErrorContext } from '../core/errors/index.ts';
import { bytes } from '../core/quantities/index.ts';
import type { Bytes } from '../core/quantities/index.ts';
import { parseMountinfo } from './mountinfo.ts';
import type { Mount } from './mountinfo.ts';
import { volumeFolders, volumeMountPoint, whyNotEligible } from './volumes.ts';
import type { VolumeName } from './volumes.ts';

/** TMPFS_MAGIC of linux/magic.h. */
const TMPFS_MAGIC = 0x01021994;
// Linux's O_PATH, which Node does not name: a descriptor that only stands for the place.
const O_PATH = 0o10000000;
const { O_DIRECTORY, O_NOFOLLOW } = constants;

/** Where kubelet keeps its pods, seen from here. */
export interface KubeletPlace {
  /** Absolute. May be a symbolic link, unless it is looked at through a process. */
  readonly kubeletRoot: string;
  /** A process in whose mount namespace kubelet's volumes are, when they are not in our own: 1, say. */
  readonly throughPid?: number;
}

/** What a volume can hold and holds. `pageSize` is what sizes are counted in. */
export interface VolumeSize {
  readonly size: Bytes;
  readonly used: Bytes;
  readonly pageSize: Bytes;
}

export interface OpenVolume {
  readonly descriptor: number;
  readonly mount: Mount;
}

/** The table of mounts of a place (of one device, or all), and the kubelet root as it names it. */
export function readMounts(
  place: KubeletPlace,
  device?: string,
): { readonly mounts: Mount[]; readonly kubeletRoot: string } {
  const mounts = parseMountinfo(readFileSync(`/proc/${place.throughPid ?? 'self'}/mountinfo`, 'utf8'), device);
  const kubeletRoot = place.throughPid === undefined ? realpathSync(place.kubeletRoot) : place.kubeletRoot;
  return { mounts, kubeletRoot };
}

/**
 * Runs `use` on a volume's folder. That it is a tmpfs, and mounted there, is known; whose it is, is not.
 * Throws UNKNOWN_VOLUME when nothing is mounted there, VOLUME_NOT_ELIGIBLE when a symbolic link is on the way or it is
 * something else than a tmpfs.
 */
export function withVolumeFolder<Result>(
  place: KubeletPlace,
  volume: VolumeName,
  use: (descriptor: number) => Result,
): Result {
  const descriptor = openVolumeFolder(place, volume);
  try {
    return use(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** As {@link withVolumeFolder}, for who closes the descriptor by itself. */
export function openVolumeFolder(place: KubeletPlace, volume: VolumeName): number {
  const folders = volumeFolders(volume);
  let current = openRoot(place, volume);
  try {
    let outer = deviceOf(current);
    for (const folder of folders) {
      outer = deviceOf(current);
      const inner = openSync(`/proc/self/fd/${current}/${folder}`, O_PATH | O_DIRECTORY | O_NOFOLLOW);
      closeSync(current);
      current = inner;
    }
    if (deviceOf(current) === outer) throw unknown(volume, 'is not mounted');
    const { type } = statfsSync(pathOf(current));
    if (type !== TMPFS_MAGIC) throw notEligible(volume, 'is not a tmpfs');
    return current;
  } catch (error) {
    closeSync(current);
    throw explain(error, volume);
  }
}

/**
 * The mount that an opened folder is the root of, when it is this volume's own and nothing but it: the descriptor's mount
 * id and file system are looked up in the table of mounts as it is now. Throws VOLUME_NOT_ELIGIBLE.
 */
export function mountOfFolder(place: KubeletPlace, volume: VolumeName, descriptor: number): Mount {
  const device = deviceOf(descriptor);
  const { mounts, kubeletRoot } = readMounts(place, device);
  const id = Number(/^mnt_id:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${descriptor}`, 'utf8'))?.[1]);
  const mount = mounts.find((candidate) => candidate.id === id);
  const expected = volumeMountPoint(kubeletRoot, volume);
  if (mount === undefined) throw notEligible(volume, `is not in the table of mounts as one of file system ${device}`);
  if (mount.mountPoint !== expected) throw notEligible(volume, `is mounted at ${mount.mountPoint}, not at ${expected}`);
  const why = whyNotEligible(mount, mounts, kubeletRoot);
  if (why !== undefined) throw notEligible(volume, `cannot be resized: ${why}`);
  return mount;
}

/** statfs(2) of an opened volume. Throws VOLUME_NOT_ELIGIBLE when it has no size: then its use is not known either. */
export function sizeOfFolder(volume: VolumeName, descriptor: number): VolumeSize {
  const { blocks, bfree, bsize } = statfsSync(pathOf(descriptor));
  if (blocks === 0) throw notEligible(volume, 'is mounted without a size, and the kernel takes none afterwards');
  return { size: bytes(blocks * bsize), used: bytes((blocks - bfree) * bsize), pageSize: bytes(bsize) };
}

/** A path that leads to the descriptor, and nowhere else, whoever renames what. */
const pathOf = (descriptor: number): string => `/proc/self/fd/${descriptor}`;

function openRoot({ kubeletRoot, throughPid }: KubeletPlace, volume: VolumeName): number {
  try {
    return openSync(
      throughPid === undefined ? kubeletRoot : `/proc/${throughPid}/root${kubeletRoot}`,
      O_PATH | O_DIRECTORY,
    );
  } catch (error) {
    throw explain(error, volume);
  }
}

/** `major:minor` of a descriptor's file system. glibc packs both into one number (sys/sysmacros.h). */
function deviceOf(descriptor: number): string {
  const { dev } = fstatSync(descriptor, { bigint: true });
  const major = ((dev >> 8n) & 0xfffn) | ((dev >> 32n) & ~0xfffn);
  const minor = (dev & 0xffn) | ((dev >> 12n) & 0xffffff00n);
  return `${major}:${minor}`;
}

function explain(error: unknown, volume: VolumeName): unknown {
  if (error instanceof ShimError) return error;
  const errno = errnoOf(error);
  if (errno === 'ENOENT') return unknown(volume, 'is not there', error);
  if (errno === 'ENOTDIR' || errno === 'ELOOP')
    return notEligible(volume, 'is not a folder, or a symbolic link leads to it', error);
  return notEligible(volume, `cannot be opened: ${messageOf(error)}`, error);
}

export const contextOf = ({ podUid, name }: VolumeName): ErrorContext => ({ pod: podUid, volume: name });

function unknown(volume: VolumeName, why: string, cause?: unknown): ShimError {
  return fault(Code.INVALID_ARGUMENT, Reason.UNKNOWN_VOLUME, volume, why, cause);
}

function notEligible(volume: VolumeName, why: string, cause?: unknown): ShimError {
  return fault(Code.FAILED_PRECONDITION, Reason.VOLUME_NOT_ELIGIBLE, volume, why, cause);
}

function fault(code: Code, reason: Reason, volume: VolumeName, why: string, cause: unknown): ShimError {
  const errno = errnoOf(cause);
  const context = { ...contextOf(volume), ...(errno === undefined ? {} : { errno }) };
  return new ShimError(code, reason, `volume ${volume.name} of pod ${volume.podUid} ${why}`, context, { cause });
}
