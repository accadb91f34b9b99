/** Lists, measures and remounts the memory-backed volumes of a node. */
import { closeSync, statSync } from 'node:fs';
import { type Bytes, Code, errnoOf, messageOf, Reason, ShimError } from '../core/index.ts';
import {
  contextOf,
  isMountedFrom,
  type KubeletPlace,
  mountOfFolder,
  openVolumeFolder,
  readMounts,
  sizeOfFolder,
  type VolumeSize,
  withVolumeFolder,
} from './folder.ts';
import { chooseRemountMethod, failed, isTooSmall, type RemountMethod, setSize } from './remount.ts';
import { isSameSize } from './sizes.ts';
import { EMPTY_DIRS, isPodUid, surveyVolumes, type Volume, type VolumeName, type VolumeSurvey } from './volumes.ts';

export interface Remounted {
  /** `unchanged`: the volume already had the size. */
  readonly outcome: 'remounted' | 'unchanged';
  readonly before: VolumeSize;
  /** From statfs after the remount: the requested size, rounded up to a page. */
  readonly after: VolumeSize;
}

export interface VolumeReader {
  list(): readonly Volume[];
  ofPod(podUid: string): readonly Volume[];
  measure(volume: VolumeName): VolumeSize;
}

/** Reads the volumes of single pods. */
export type PodVolumes = Pick<VolumeReader, 'ofPod' | 'measure'>;

export interface VolumeResizer {
  remount(volume: VolumeName, size: Bytes): Promise<Remounted>;
}

export class MemoryVolumes implements VolumeReader, VolumeResizer {
  #method: Promise<RemountMethod> | undefined;

  /** @param method for tests; by default chosen at the first use */
  constructor(
    readonly place: KubeletPlace,
    method?: RemountMethod,
  ) {
    this.#method = method === undefined ? undefined : Promise.resolve(method);
  }

  /** Whether {@link method} has been called. */
  get isPrepared(): boolean {
    return this.#method !== undefined;
  }

  /** Why the mount namespace of the volumes is not accessible; undefined if it is. */
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

  /** Returns how this machine remounts. Also loads the required code, so that the first resize does not wait for it. */
  method(): Promise<RemountMethod> {
    this.#method ??= chooseRemountMethod();
    return this.#method;
  }

  /**
   * Returns all mounts at the paths of volumes: eligible volumes, and rejected mounts with the reason. Reads the mount
   * table once. Empty if kubelet's folder does not exist. Throws VOLUME_NOT_ELIGIBLE if the table cannot be read.
   */
  survey(): VolumeSurvey {
    try {
      const { mounts, kubeletRoot } = readMounts(this.place);
      return surveyVolumes(mounts, kubeletRoot);
    } catch (error) {
      const errno = errnoOf(error);
      if (errno === 'ENOENT' && this.place.throughPid === undefined) return { volumes: [], refused: [] };
      const message = `the mount table cannot be read: ${messageOf(error)}`;
      const context = errno === undefined ? {} : { errno };
      throw new ShimError(Code.FAILED_PRECONDITION, Reason.VOLUME_NOT_ELIGIBLE, message, context, { cause: error });
    }
  }

  /** Returns the volumes of all pods. Throws like {@link survey}. */
  list(): readonly Volume[] {
    return this.survey().volumes;
  }

  /** Returns the volumes of a pod. Throws like {@link survey}. */
  ofPod(podUid: string): readonly Volume[] {
    // Without this folder there are no mounts. Avoids reading the mount table, which is long on a node with many pods.
    if (!this.#hasFolder(podUid, EMPTY_DIRS)) return [];
    return this.list().filter((volume) => volume.podUid === podUid);
  }

  /**
   * Returns a reader for the volumes of many pods in a row. It reads the mount table once, at the first call for a pod
   * that may have volumes: the table is long on a node with many pods. It reads the table again for a pod whose volumes
   * were unmounted or mounted again since. It does not find volumes that were mounted since, so the pods must be known
   * before: kubelet mounts the volumes of a pod before it creates the sandbox (pkg/kubelet/kubelet.go, SyncPod:
   * WaitForAttachAndMount). Both methods throw like the methods of this object.
   */
  atOnce(): PodVolumes {
    let known: ReadonlyMap<string, readonly Volume[]> | undefined;
    return {
      ofPod: (podUid) => {
        if (!this.#hasFolder(podUid, EMPTY_DIRS)) return [];
        known ??= Map.groupBy(this.list(), (volume) => volume.podUid);
        const volumes = known.get(podUid) ?? [];
        return volumes.every((volume) => isMountedFrom(this.place, volume, volume.device))
          ? volumes
          : this.ofPod(podUid);
      },
      measure: (volume) => this.measure(volume),
    };
  }

  /** Whether kubelet still has a folder for a pod. It removes the folder after the pod was deleted. */
  hasPodFolder(podUid: string): boolean {
    return this.#hasFolder(podUid, '');
  }

  /** Whether a folder exists below a pod's folder. `folder` starts with a slash, or is empty. */
  #hasFolder(podUid: string, folder: string): boolean {
    const { kubeletRoot, throughPid } = this.place;
    const root = throughPid === undefined ? kubeletRoot : `/proc/${throughPid}/root${kubeletRoot}`;
    return isPodUid(podUid) && statSync(`${root}/pods/${podUid}${folder}`, { throwIfNoEntry: false }) !== undefined;
  }

  /** Reads size and usage by statfs. Throws UNKNOWN_VOLUME if unmounted, VOLUME_NOT_ELIGIBLE if no sized tmpfs. */
  measure(volume: VolumeName): VolumeSize {
    return withVolumeFolder(this.place, volume, (descriptor) => sizeOfFolder(volume, descriptor));
  }

  /**
   * Resizes a volume. The minimum is one page; the kernel rounds up to pages. Files, open descriptors, mappings and all
   * other options and flags stay the same. All containers see the new size immediately.
   *
   * On error, nothing has changed: INVALID_VALUE for less than a page, UNKNOWN_VOLUME and VOLUME_NOT_ELIGIBLE like
   * {@link measure}, VOLUME_IN_USE with both values if the files need more, REMOUNT_FAILED if the kernel rejects the
   * size for another reason or the volume has another size afterwards.
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
        throw failed(volume, size, `the volume has ${after.size} bytes after the remount`);
      }
      return { outcome: 'remounted', before, after };
    } finally {
      closeSync(descriptor);
    }
  }
}

const roundUp = (size: Bytes, pageSize: Bytes): number => Math.ceil(size / pageSize) * pageSize;

/** Returns the error for a size of less than a page. The kernel treats 0 as unlimited, and sets no limit later. */
function tooLittle(volume: VolumeName, size: Bytes, pageSize: Bytes): ShimError {
  const message = `volume ${volume.name} of pod ${volume.podUid}: ${size} bytes are less than a page (${pageSize} bytes)`;
  const context = { ...contextOf(volume), asked: String(size) };
  return new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_VALUE, message, context);
}

function inUse(volume: VolumeName, size: Bytes, used: Bytes, cause?: unknown): ShimError {
  const message = `volume ${volume.name} of pod ${volume.podUid} stores ${used} bytes: it cannot shrink to ${size}`;
  const context = { ...contextOf(volume), asked: String(size), found: String(used) };
  return new ShimError(Code.FAILED_PRECONDITION, Reason.VOLUME_IN_USE, message, context, { cause });
}
