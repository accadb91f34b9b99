/** The memory-backed volumes of a node: which there are, what they hold, and a new size for one. */
import { closeSync, statSync } from 'node:fs';
import { Code, Reason, ShimError, errnoOf, messageOf } from '../core/errors/index.ts';
import { bytes } from '../core/quantities/index.ts';
import type { Bytes } from '../core/quantities/index.ts';
import { contextOf, mountOfFolder, openVolumeFolder, readMounts, sizeOfFolder, withVolumeFolder } from './folder.ts';
import type { KubeletPlace, VolumeSize } from './folder.ts';
import { chooseRemountMethod, failed, isTooSmall, setSize } from './remount.ts';
import type { RemountMethod } from './remount.ts';
import { isSameSize } from './sizes.ts';
import { EMPTY_DIRS, isPodUid, surveyVolumes } from './volumes.ts';
import type { Volume, VolumeName, VolumeSurvey } from './volumes.ts';

export interface Remounted {
  /** `unchanged`: it had that size already, and nothing was done. */
  readonly outcome: 'remounted' | 'unchanged';
  readonly before: VolumeSize;
  /** As statfs says afterwards: the asked size, rounded up to a page. */
  readonly after: VolumeSize;
}

export interface VolumeReader {
  list(): readonly Volume[];
  ofPod(podUid: string): readonly Volume[];
  measure(volume: VolumeName): VolumeSize;
}

export interface VolumeResizer {
  remount(volume: VolumeName, size: Bytes): Promise<Remounted>;
}

export class MemoryVolumes implements VolumeReader, VolumeResizer {
  #method: Promise<RemountMethod> | undefined;

  /** `method` is for tests; else it is found out at the first use. */
  constructor(
    readonly place: KubeletPlace,
    method?: RemountMethod,
  ) {
    this.#method = method === undefined ? undefined : Promise.resolve(method);
  }

  /** Whether {@link method} has been asked for. */
  get isPrepared(): boolean {
    return this.#method !== undefined;
  }

  /** Why the mount namespace that the volumes are in cannot be looked into; undefined: it can. */
  get unreachable(): string | undefined {
    const { throughPid } = this.place;
    if (throughPid === undefined) return undefined;
    try {
      statSync(`/proc/${throughPid}/root/.`);
      return undefined;
    } catch (error) {
      return messageOf(error);
    }
  }

  /** How this machine remounts. Also loads what is needed for it, so that a first resize does not wait. */
  method(): Promise<RemountMethod> {
    this.#method ??= chooseRemountMethod();
    return this.#method;
  }

  /**
   * What is at the volumes' places of all pods, with what will not be touched and why. One read of the table of mounts.
   * Nothing when kubelet's folder is not there; throws VOLUME_NOT_ELIGIBLE when the table cannot be read.
   */
  survey(): VolumeSurvey {
    try {
      const { mounts, kubeletRoot } = readMounts(this.place);
      return surveyVolumes(mounts, kubeletRoot);
    } catch (error) {
      const errno = errnoOf(error);
      if (errno === 'ENOENT' && this.place.throughPid === undefined) return { volumes: [], refused: [] };
      const message = `the table of mounts cannot be read: ${messageOf(error)}`;
      const context = errno === undefined ? {} : { errno };
      throw new ShimError(Code.FAILED_PRECONDITION, Reason.VOLUME_NOT_ELIGIBLE, message, context, { cause: error });
    }
  }

  /** The volumes of all pods. As {@link survey} otherwise. */
  list(): readonly Volume[] {
    return this.survey().volumes;
  }

  /** The volumes of one pod. As {@link survey} otherwise. */
  ofPod(podUid: string): readonly Volume[] {
    // Without a folder for them there can be no mounts: the table, long on a node with many pods, need not be read.
    if (!this.#hasFolder(podUid, EMPTY_DIRS)) return [];
    return this.list().filter((volume) => volume.podUid === podUid);
  }

  /** Whether kubelet still has a folder for a pod: it removes it when the pod has been deleted. */
  hasPodFolder(podUid: string): boolean {
    return this.#hasFolder(podUid, '');
  }

  /** Whether there is a folder below a pod's; `folder` begins with a slash, or is empty. */
  #hasFolder(podUid: string, folder: string): boolean {
    const { kubeletRoot, throughPid } = this.place;
    const root = throughPid === undefined ? kubeletRoot : `/proc/${throughPid}/root${kubeletRoot}`;
    return isPodUid(podUid) && statSync(`${root}/pods/${podUid}${folder}`, { throwIfNoEntry: false }) !== undefined;
  }

  /**
   * Size and use as statfs says. Throws UNKNOWN_VOLUME when nothing is mounted there, VOLUME_NOT_ELIGIBLE when it is not a
   * tmpfs with a size.
   */
  measure(volume: VolumeName): VolumeSize {
    return withVolumeFolder(this.place, volume, (descriptor) => sizeOfFolder(volume, descriptor));
  }

  /**
   * Gives a volume a new size: at least one page, which the kernel rounds up to. Its files, open descriptors, mappings and
   * every other option and flag stay; all containers that have it see the new size at once.
   *
   * Throws INVALID_VALUE for less than a page, UNKNOWN_VOLUME and VOLUME_NOT_ELIGIBLE as the path rule says,
   * VOLUME_IN_USE with both figures when its files need more, REMOUNT_FAILED when the kernel refuses for another reason or
   * has another size afterwards. Nothing has changed then.
   */
  async remount(volume: VolumeName, size: Bytes): Promise<Remounted> {
    const method = await this.method();
    const descriptor = openVolumeFolder(this.place, volume);
    try {
      const mount = mountOfFolder(this.place, volume, descriptor);
      const before = sizeOfFolder(volume, descriptor);
      if (size < before.pageSize) throw tooLittle(volume, size, before.pageSize);
      if (isSameSize(size, before.size, before.pageSize)) return { outcome: 'unchanged', before, after: before };
      if (roundUp(size, before.pageSize) < before.used) throw inUse(volume, size, before.used);
      try {
        await setSize(method, this.place, volume, { descriptor, mount }, size);
      } catch (error) {
        const { used } = sizeOfFolder(volume, descriptor);
        throw isTooSmall(error) && roundUp(size, before.pageSize) < used ? inUse(volume, size, used, error) : error;
      }
      const after = sizeOfFolder(volume, descriptor);
      if (!isSameSize(size, after.size, after.pageSize)) {
        throw failed(volume, size, `the kernel has ${after.size} afterwards`);
      }
      return { outcome: 'remounted', before, after };
    } finally {
      closeSync(descriptor);
    }
  }
}

const roundUp = (size: Bytes, pageSize: Bytes): Bytes => bytes(Math.ceil(size / pageSize) * pageSize);

/** Size 0 is unlimited to the kernel, and it takes no limit afterwards. */
function tooLittle(volume: VolumeName, size: Bytes, pageSize: Bytes): ShimError {
  const message = `volume ${volume.name} of pod ${volume.podUid}: ${size} bytes are less than a page (${pageSize})`;
  const context = { ...contextOf(volume), asked: String(size) };
  return new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_VALUE, message, context);
}

function inUse(volume: VolumeName, size: Bytes, used: Bytes, cause?: unknown): ShimError {
  const message = `volume ${volume.name} of pod ${volume.podUid} stores ${used} bytes: it cannot shrink to ${size}`;
  const context = { ...contextOf(volume), asked: String(size), found: String(used) };
  return new ShimError(Code.FAILED_PRECONDITION, Reason.VOLUME_IN_USE, message, context, { cause });
}
