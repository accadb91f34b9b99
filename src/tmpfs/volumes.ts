/**
 * Which mounts are memory-backed volumes of pods: a tmpfs mounted exactly where kubelet mounts one, and nothing that only
 * looks like it. Pure: the table of mounts in, volumes out.
 */
import { Code, Reason, ShimError } from '../core/errors/index.ts';
import { optionOf } from './mountinfo.ts';
import type { Mount } from './mountinfo.ts';
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

/** Something at a volume's place that will not be touched. */
export interface RefusedVolume extends VolumeName {
  readonly mountPoint: string;
  readonly why: string;
}

export interface VolumeSurvey {
  readonly volumes: readonly Volume[];
  readonly refused: readonly RefusedVolume[];
}

/** Below a pod's folder: where kubelet has its emptyDir volumes. */
export const EMPTY_DIRS = '/volumes/kubernetes.io~empty-dir';

/** The folders from the kubelet root to a volume. Throws UNKNOWN_VOLUME when a name could lead elsewhere. */
export function volumeFolders({ podUid, name }: VolumeName): readonly string[] {
  if (!isPodUid(podUid) || !isDnsLabel(name)) {
    const asked = `${podUid}/${name}`;
    const context = { pod: podUid, volume: name, asked };
    const message = `not a pod uid and a volume: ${JSON.stringify(asked)}`;
    throw new ShimError(Code.INVALID_ARGUMENT, Reason.UNKNOWN_VOLUME, message, context);
  }
  return ['pods', podUid, ...EMPTY_DIRS.split('/').slice(1), name];
}

/** Where kubelet mounts a memory-backed emptyDir. Throws UNKNOWN_VOLUME when a name could lead elsewhere. */
export function volumeMountPoint(kubeletRoot: string, volume: VolumeName): string {
  return [kubeletRoot === '/' ? '' : kubeletRoot, ...volumeFolders(volume)].join('/');
}

/**
 * All volumes of all pods. `kubeletRoot` as the table of mounts names it: without symbolic links. Of mounts on top of each
 * other the top-most counts.
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
 * Why this mount, which is at a volume's place, is not a volume; undefined when it is one. Apart from the obvious (another
 * file system, a folder of one), it must be the only use of that tmpfs: a tmpfs that was mounted elsewhere before, or that
 * is another volume of some pod (a secret, a token), has been bound over this place. `mounts` are those of the same device,
 * or more, oldest first.
 */
export function whyNotEligible(mount: Mount, mounts: readonly Mount[], kubeletRoot: string): string | undefined {
  if (mount.fsType !== 'tmpfs') return `a ${mount.fsType} is mounted there, not a tmpfs`;
  if (mount.root !== '/') return `only the folder ${mount.root} of a tmpfs is mounted there`;
  // Shown as size=0k. Without `size=` it has the default, half of the memory.
  if (/^0k?$/.test(optionOf(mount.superOptions, 'size') ?? ''))
    return 'it has no size, and the kernel takes none afterwards';
  const own = mount.mountPoint.slice(kubeletRoot.length);
  const pods = `${kubeletRoot === '/' ? '' : kubeletRoot}/pods/`;
  let earlier = true;
  for (const other of mounts) {
    if (other.id === mount.id) earlier = false;
    // Peers of one mount, under whatever folder the kubelet root is mounted once more, end in the same path; subPath
    // mounts are bound from the volume by kubelet.
    if (other.device !== mount.device || other.mountPoint.endsWith(own)) continue;
    if (/\/volume-subpaths\//.test(other.mountPoint)) continue;
    if (earlier || other.mountPoint.startsWith(pods)) return `it is the tmpfs of ${other.mountPoint}`;
  }
  return undefined;
}

/** The mount that a path leads to. Copies of one tmpfs in a stack (shared peers) are as good as each other. */
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

/** A uid of the API server, or the hash that kubelet gives to a static pod. */
export function isPodUid(uid: string): boolean {
  return /^[0-9A-Za-z_.-]{1,253}$/.test(uid) && !/^\.+$/.test(uid);
}
