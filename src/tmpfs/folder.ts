/**
 * Opens a volume's folder safely: from the kubelet root down, one name at a time, without following symbolic links. All
 * later operations use the descriptor, so that the folder cannot be replaced in between.
 */
import { closeSync, constants, fstatSync, openSync, readFileSync, realpathSync, statfsSync } from 'node:fs';
import { type Bytes, bytes, Code, type ErrorContext, errnoOf, messageOf, Reason, ShimError } from '../core/index.ts';
import { type Mount, parseMountinfo } from './mountinfo.ts';
import { type VolumeName, volumeFolders, volumeMountPoint, whyNotEligible } from './volumes.ts';

/** TMPFS_MAGIC of linux/magic.h. */
const TMPFS_MAGIC = 0x01021994;
// O_PATH of Linux, which Node does not export: a descriptor that only identifies a path (open(2)).
const O_PATH = 0o10000000;
const { O_DIRECTORY, O_NOFOLLOW } = constants;

/** The location of kubelet's pods. */
export interface KubeletPlace {
  /** Absolute path. May be a symbolic link, unless `throughPid` is set. */
  readonly kubeletRoot: string;
  /** A process whose mount namespace has kubelet's volumes, such as 1, if the shim's own does not have them. */
  readonly throughPid?: number;
}

/** Size and usage of a volume, and the page size to which sizes are rounded. */
export interface VolumeSize {
  readonly size: Bytes;
  readonly used: Bytes;
  readonly pageSize: Bytes;
}

export interface OpenVolume {
  readonly descriptor: number;
  readonly mount: Mount;
}

/** Reads the mount table (of one device, or all), and the kubelet root as the table names it. */
export function readMounts(
  place: KubeletPlace,
  device?: string,
): { readonly mounts: Mount[]; readonly kubeletRoot: string } {
  const mounts = parseMountinfo(readFileSync(`/proc/${place.throughPid ?? 'self'}/mountinfo`, 'utf8'), device);
  const kubeletRoot = place.throughPid === undefined ? realpathSync(place.kubeletRoot) : place.kubeletRoot;
  return { mounts, kubeletRoot };
}

/**
 * Runs `use` on a volume's folder. Verifies that a tmpfs is mounted there, but not that it is the volume's own. Throws
 * UNKNOWN_VOLUME if nothing is mounted there, VOLUME_NOT_ELIGIBLE if the path has a symbolic link or the mount is not a
 * tmpfs.
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

/** Opens a volume's folder like {@link withVolumeFolder}. The caller closes the descriptor. */
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
 * Returns the mount of an opened folder after verifying that it is the volume's own: looks up the descriptor's mount ID
 * and file system in the current mount table. Throws VOLUME_NOT_ELIGIBLE.
 */
export function mountOfFolder(place: KubeletPlace, volume: VolumeName, descriptor: number): Mount {
  const device = deviceOf(descriptor);
  const { mounts, kubeletRoot } = readMounts(place, device);
  const id = Number(/^mnt_id:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${descriptor}`, 'utf8'))?.[1]);
  const mount = mounts.find((candidate) => candidate.id === id);
  const expected = volumeMountPoint(kubeletRoot, volume);
  if (mount === undefined) throw notEligible(volume, `is not in the mount table as a mount of file system ${device}`);
  if (mount.mountPoint !== expected) throw notEligible(volume, `is mounted at ${mount.mountPoint}, not at ${expected}`);
  const why = whyNotEligible(mount, mounts, kubeletRoot);
  if (why !== undefined) throw notEligible(volume, `cannot be resized: ${why}`);
  return mount;
}

/** Whether the file system `device` (`major:minor`) is mounted at a volume's folder now. Never throws. */
export function isMountedFrom(place: KubeletPlace, volume: VolumeName, device: string): boolean {
  try {
    return withVolumeFolder(place, volume, deviceOf) === device;
  } catch {
    return false;
  }
}

/** Reads size and usage by statfs(2). Throws VOLUME_NOT_ELIGIBLE for a tmpfs without a size: unknown usage. */
export function sizeOfFolder(volume: VolumeName, descriptor: number): VolumeSize {
  const { blocks, bfree, bsize } = statfsSync(pathOf(descriptor));
  if (blocks === 0) throw notEligible(volume, 'is mounted without a size, and the kernel cannot set one afterwards');
  if (blocks * bsize > Number.MAX_SAFE_INTEGER) throw notEligible(volume, 'has a size of 8Pi or more');
  return { size: bytes(blocks * bsize), used: bytes((blocks - bfree) * bsize), pageSize: bytes(bsize) };
}

/** A path that always leads to the descriptor, even after renames. */
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
  if (errno === 'ENOENT') return unknown(volume, 'does not exist', error);
  if (errno === 'ENOTDIR' || errno === 'ELOOP')
    return notEligible(volume, 'is not a folder, or its path has a symbolic link', error);
  return notEligible(volume, `cannot be opened: ${messageOf(error)}`, error);
}

/** Returns the error fields that name a volume. */
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
