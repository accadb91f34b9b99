/**
 * Where the cgroups of pods and containers lie, for the two cgroup drivers, as containerd lays them out. Pure: names in,
 * paths from the cgroup root out. The surest source for a container that runs is /proc/<pid>/cgroup (proc.ts).
 */
import { posix } from 'node:path';
import { Code, Reason, ShimError } from '../core/errors/index.ts';
import type { CgroupPath } from './file.ts';

export type CgroupDriverName = 'cgroupfs' | 'systemd';

export interface CgroupDriver {
  readonly name: CgroupDriverName;
  /**
   * The pod's cgroup, of CRI's cgroup_parent. Undefined when the name does not tell: empty or relative, which runc takes
   * from wherever it stands itself. Throws CGROUP_UNAVAILABLE for a name that is none.
   */
  podCgroup(cgroupParent: string): CgroupPath | undefined;
  /** A container's cgroup, of the pod's cgroup_parent and the container's whole id. As {@link podCgroup} otherwise. */
  containerCgroup(cgroupParent: string, containerId: string): CgroupPath | undefined;
}

const cgroupfs: CgroupDriver = {
  name: 'cgroupfs',
  podCgroup(cgroupParent) {
    if (!cgroupParent.startsWith('/')) return undefined;
    if (cgroupParent.includes('\0') || cgroupParent.split('/').includes('..')) throw notAName(cgroupParent);
    return posix.normalize(cgroupParent).replace(/(.)\/$/, '$1');
  },
  containerCgroup(cgroupParent, containerId) {
    const pod = this.podCgroup(cgroupParent);
    return pod === undefined ? undefined : posix.join(pod, plainId(containerId));
  },
};

const systemd: CgroupDriver = {
  name: 'systemd',
  podCgroup(cgroupParent) {
    // kubelet gives the whole path, crictl often the last slice alone. Like containerd, look at the last part only.
    return cgroupParent === '' ? undefined : expandSlice(posix.basename(cgroupParent));
  },
  containerCgroup(cgroupParent, containerId) {
    const pod = this.podCgroup(cgroupParent);
    return pod === undefined ? undefined : posix.join(pod, `cri-containerd-${plainId(containerId)}.scope`);
  },
};

export const cgroupDrivers: Readonly<Record<CgroupDriverName, CgroupDriver>> = { cgroupfs, systemd };

/** The driver that a pod's cgroup_parent was made for, by the rule that containerd itself goes by. */
export function driverOf(cgroupParent: string): CgroupDriver {
  return posix.basename(cgroupParent).endsWith('.slice') ? systemd : cgroupfs;
}

/**
 * The path of a systemd slice. A slice nests by its dashes (systemd.slice(5)): `a-b.slice` lies in `/a.slice/a-b.slice`,
 * and `-.slice` is the root. Throws CGROUP_UNAVAILABLE when it is no name of a slice.
 */
export function expandSlice(slice: string): CgroupPath {
  if (slice === '-.slice') return '/';
  const parts = slice.endsWith('.slice') ? slice.slice(0, -'.slice'.length).split('-') : [''];
  if (parts.some((part) => !/^[A-Za-z0-9:_.\\]+$/.test(part))) throw notAName(slice);
  return parts.map((_, index) => `/${parts.slice(0, index + 1).join('-')}.slice`).join('');
}

/** Whether kubelet has put a pod among those that request nothing and have no limits, by where its cgroup lies. */
export function isBestEffort(podCgroup: CgroupPath): boolean {
  return /^(?:besteffort|.+-besteffort\.slice)$/.test(posix.basename(posix.dirname(podCgroup)));
}

/**
 * The container's own cgroup, in a path that may lead further in: a container that runs an init system has its
 * processes in cgroups of its own making. Undefined when no part of the path is this container's.
 */
export function containerCgroupIn(path: CgroupPath, containerId: string): CgroupPath | undefined {
  const parts = path.split('/');
  const names = new Set([containerId, `cri-containerd-${containerId}.scope`]);
  const index = parts.findIndex((part) => names.has(part));
  return index === -1 ? undefined : parts.slice(0, index + 1).join('/');
}

/** The container whose cgroup has this name beneath its pod's: its id alone, or systemd's scope. Undefined for others. */
export function containerIdOf(name: string): string | undefined {
  const [, scope, plain] = /^(?:cri-containerd-([0-9a-f]{64})\.scope|([0-9a-f]{64}))$/.exec(name) ?? [];
  return scope ?? plain;
}

function plainId(containerId: string): string {
  if (!/^[A-Za-z0-9][A-Za-z0-9_.-]*$/.test(containerId)) throw notAName(containerId);
  return containerId;
}

function notAName(name: string): ShimError {
  const message = `not the name of a cgroup: ${JSON.stringify(name)}`;
  return new ShimError(Code.INVALID_ARGUMENT, Reason.CGROUP_UNAVAILABLE, message, { asked: name });
}
