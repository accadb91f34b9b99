/**
 * Finds the mounts that are memory-backed volumes of pods: a tmpfs mounted exactly where kubelet mounts one. Rejects
 * mounts that only look like volumes. Pure: takes the mount table, returns volumes.
 */
import { Code, Reason, ShimError } from '../core/index.ts';
import { type Mount, optionOf } from './mountinfo.ts';
import { isDnsLabel } from './sizes.ts';

export interface VolumeName {
  readonly podUid: string;
  readonly name: string;
}

export interface Volume extends VolumeName {
  readonly mountPoint: string;
  /** The file system, `major:minor`: the same in every container that has the volume. */
  readonly device: string;
}

/** A mount at a volume's path that the shim does not change. */
export interface RefusedVolume extends VolumeName {
  readonly mountPoint: string;
  readonly why: string;
}

export interface VolumeSurvey {
  readonly volumes: readonly Volume[];
  readonly refused: readonly RefusedVolume[];
}

/** kubelet's folder for emptyDir volumes, below a pod's folder. */
export const EMPTY_DIRS = '/volumes/kubernetes.io~empty-dir';

/** Returns the folders from the kubelet root to a volume. Throws UNKNOWN_VOLUME if a name could lead elsewhere. */
export function volumeFolders({ podUid, name }: VolumeName): readonly string[] {
  if (!isPodUid(podUid) || !isDnsLabel(name)) {
    const asked = `${podUid}/${name}`;
    const context = { pod: podUid, volume: name, asked };
    const message = `not a pod uid and a volume: ${JSON.stringify(asked)}`;
    throw new ShimError(Code.INVALID_ARGUMENT, Reason.UNKNOWN_VOLUME, message, context);
  }
  return ['pods', podUid, ...EMPTY_DIRS.split('/').slice(1), name];
}

/** Returns kubelet's mount of a memory-backed emptyDir. Throws UNKNOWN_VOLUME if a name could lead elsewhere. */
export function volumeMountPoint(kubeletRoot: string, volume: VolumeName): string {
  return [kubeletRoot === '/' ? '' : kubeletRoot, ...volumeFolders(volume)].join('/');
}

/**
 * Returns all volumes of all pods: only memory-backed emptyDirs (KEP-6030). `kubeletRoot` is the path in the mount
 * table, without symbolic links. Of stacked mounts, the top-most counts.
 */
export function surveyVolumes(mounts: readonly Mount[], kubeletRoot: string): VolumeSurvey {
  const places = new Map<string, { name: VolumeName; stack: Mount[] }>();
  const byDevice = new Map<string, Mount[]>();
  for (const mount of mounts) {
    const others = byDevice.get(mount.device);
    if (others === undefined) byDevice.set(mount.device, [mount]);
    else others.push(mount);
    const name = nameOf(mount.mountPoint, kubeletRoot);
    if (name === undefined) continue;
    const place = places.get(mount.mountPoint) ?? { name, stack: [] };
    place.stack.push(mount);
    places.set(mount.mountPoint, place);
  }
  const volumes: Volume[] = [];
  const refused: RefusedVolume[] = [];
  for (const [mountPoint, { name, stack }] of places) {
    const top = topMost(stack);
    const why =
      top === undefined
        ? 'several mounts hide each other'
        : whyNotEligible(top, byDevice.get(top.device) ?? [], kubeletRoot);
    if (top === undefined || why !== undefined) refused.push({ ...name, mountPoint, why: why ?? '' });
    else volumes.push({ ...name, mountPoint, device: top.device });
  }
  return { volumes, refused };
}

/**
 * Returns why this mount at a volume's path is not a volume; undefined if it is one. It must be a whole tmpfs, and the
 * only use of that tmpfs: a tmpfs that was mounted elsewhere before, or that is another volume of a pod (a secret, a
 * token), was bind-mounted over this path. `mounts` are all mounts of the same device, or more, oldest first.
 */
export function whyNotEligible(mount: Mount, mounts: readonly Mount[], kubeletRoot: string): string | undefined {
  if (mount.fsType !== 'tmpfs') return `a ${mount.fsType} is mounted there, not a tmpfs`;
  if (mount.root !== '/') return `only the folder ${mount.root} of a tmpfs is mounted there`;
  // The kernel shows no size as size=0k. Without `size=`, the tmpfs has the default size, half of the memory.
  if (/^0k?$/.test(optionOf(mount.superOptions, 'size') ?? ''))
    return 'it has no size, and the kernel takes none afterwards';
  const own = mount.mountPoint.slice(kubeletRoot.length);
  const pods = `${kubeletRoot === '/' ? '' : kubeletRoot}/pods/`;
  let earlier = true;
  for (const other of mounts) {
    if (other.id === mount.id) earlier = false;
    // Peers of one mount end in the same path, also below a second mount of the kubelet root. kubelet bind-mounts
    // subPath mounts from the volume.
    if (other.device !== mount.device || other.mountPoint.endsWith(own)) continue;
    if (/\/volume-subpaths\//.test(other.mountPoint)) continue;
    if (earlier || other.mountPoint.startsWith(pods)) return `it is the tmpfs of ${other.mountPoint}`;
  }
  return undefined;
}

/** Returns the mount that a path leads to. Copies of one tmpfs in a stack (shared peers) are equivalent. */
function topMost(stack: readonly Mount[]): Mount | undefined {
  const uncovered = stack.filter((mount) => !stack.some((other) => other.parentId === mount.id));
  const devices = new Set(uncovered.map((mount) => mount.device));
  return devices.size === 1 ? uncovered[0] : undefined;
}

function nameOf(mountPoint: string, kubeletRoot: string): VolumeName | undefined {
  const root = kubeletRoot === '/' ? '' : kubeletRoot;
  if (!mountPoint.startsWith(`${root}/pods/`)) return undefined;
  const [podUid, volumes, plugin, name, ...rest] = mountPoint.slice(`${root}/pods/`.length).split('/');
  if (podUid === undefined || name === undefined || rest.length > 0) return undefined;
  if (volumes !== 'volumes' || plugin !== 'kubernetes.io~empty-dir') return undefined;
  return isPodUid(podUid) && isDnsLabel(name) ? { podUid, name } : undefined;
}

/** Whether this is a uid of the API server, or the hash that kubelet assigns to a static pod. */
export function isPodUid(uid: string): boolean {
  return /^[0-9A-Za-z_.-]{1,253}$/.test(uid) && !/^\.+$/.test(uid);
}
