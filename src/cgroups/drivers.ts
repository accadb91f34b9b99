/**
 * Paths of the cgroups of pods and containers, for the two cgroup drivers, as containerd creates them. Pure: computes
 * paths relative to the cgroup root from names. For a running container, /proc/<pid>/cgroup is more reliable (proc.ts).
 */
import { posix } from 'node:path';
import { Code, Reason, ShimError } from '../core/index.ts';
import type { CgroupPath } from './file.ts';

export type CgroupDriverName = 'cgroupfs' | 'systemd';

export interface CgroupDriver {
  readonly name: CgroupDriverName;
  /**
   * Returns the pod's cgroup for CRI's cgroup_parent. Undefined if the name is empty or relative: runc resolves it from
   * its own cgroup. Throws CGROUP_UNAVAILABLE for an invalid name.
   */
  podCgroup(cgroupParent: string): CgroupPath | undefined;
  /**
   * Returns a container's cgroup for the pod's cgroup_parent and the full container ID. Returns undefined and throws
   * like {@link podCgroup}.
   */
  containerCgroup(cgroupParent: string, containerId: string): CgroupPath | undefined;
}

const cgroupfs: CgroupDriver = {
  name: 'cgroupfs',
  podCgroup(cgroupParent) {
    if (!cgroupParent.startsWith('/')) return undefined;
    if (cgroupParent.includes('\0') || cgroupParent.split('/').includes('..')) throw invalidName(cgroupParent);
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
    // kubelet passes the full path, crictl often only the last slice. Like containerd, this uses the last part only.
    return cgroupParent === '' ? undefined : expandSlice(posix.basename(cgroupParent));
  },
  containerCgroup(cgroupParent, containerId) {
    const pod = this.podCgroup(cgroupParent);
    return pod === undefined ? undefined : posix.join(pod, `cri-containerd-${plainId(containerId)}.scope`);
  },
};

export const cgroupDrivers: Readonly<Record<CgroupDriverName, CgroupDriver>> = { cgroupfs, systemd };

/** Returns the driver of a pod's cgroup_parent, by containerd's rule: names that end in .slice are for systemd. */
export function driverOf(cgroupParent: string): CgroupDriver {
  return posix.basename(cgroupParent).endsWith('.slice') ? systemd : cgroupfs;
}

/**
 * Returns the path of a systemd slice. Dashes separate levels (systemd.slice(5)): `a-b.slice` is at
 * `/a.slice/a-b.slice`, and `-.slice` is the root. Throws CGROUP_UNAVAILABLE if the name is not a slice.
 */
export function expandSlice(slice: string): CgroupPath {
  if (slice === '-.slice') return '/';
  const parts = slice.endsWith('.slice') ? slice.slice(0, -'.slice'.length).split('-') : [''];
  if (parts.some((part) => !/^[A-Za-z0-9:_.\\]+$/.test(part))) throw invalidName(slice);
  return parts.map((_, index) => `/${parts.slice(0, index + 1).join('-')}.slice`).join('');
}

/** Returns a pod's QoS class from the parent of its cgroup. Undefined if the parent is not a cgroup of kubelet. */
export function qosClassOf(podCgroup: CgroupPath): 'Guaranteed' | 'Burstable' | 'BestEffort' | undefined {
  const parent = posix.basename(posix.dirname(podCgroup));
  if (/^(?:besteffort|.+-besteffort\.slice)$/.test(parent)) return 'BestEffort';
  if (/^(?:burstable|.+-burstable\.slice)$/.test(parent)) return 'Burstable';
  return /^(?:kubepods|(?:.+-)?kubepods\.slice)$/.test(parent) ? 'Guaranteed' : undefined;
}

/**
 * Whether a cgroup above a pod's is kubelet's own: kubepods (kubelet pkg/kubelet/cm/node_container_manager_linux.go),
 * or the cgroup of a QoS class (pkg/kubelet/cm/qos_container_manager_linux.go).
 */
export const isKubeletCgroup = (cgroup: CgroupPath): boolean =>
  /(?:^|\/)(?:kubepods(?:\/(?:burstable|besteffort))?|(?:[^/]+-)?kubepods(?:-(?:burstable|besteffort))?\.slice)$/.test(
    cgroup,
  );

const QOS_CLASSES = ['', 'burstable', 'besteffort'] as const;

/**
 * Returns the cgroups that kubelet may create for a pod, one for each QoS class, derived from another pod's cgroup
 * `other` (kubelet pkg/kubelet/cm/pod_container_manager_linux.go, GetPodContainerName). Undefined if `other` is not a
 * cgroup of kubelet, or if the uid is not valid in a cgroup name.
 */
export function kubeletPodCgroups(other: CgroupPath, uid: string): readonly CgroupPath[] | undefined {
  const parent = posix.dirname(other);
  if (!/^[A-Za-z0-9-]+$/.test(uid) || !isKubeletCgroup(parent)) return undefined;
  const [, slice] = /([^/]*kubepods)(?:-(?:burstable|besteffort))?\.slice$/.exec(parent) ?? [];
  if (slice !== undefined) {
    const pod = `pod${uid.replaceAll('-', '_')}`;
    return QOS_CLASSES.map((qos) => expandSlice(`${[slice, qos, pod].filter((part) => part !== '').join('-')}.slice`));
  }
  const root = parent.replace(/\/(?:burstable|besteffort)$/, '');
  return QOS_CLASSES.map((qos) => posix.join(root, qos, `pod${uid}`));
}

/** Whether a pod's QoS class is BestEffort, by the parent of its cgroup. */
export const isBestEffort = (podCgroup: CgroupPath): boolean => qosClassOf(podCgroup) === 'BestEffort';

/**
 * Returns the container's own cgroup from a path at or below it: a container with an init system moves its processes to
 * nested cgroups. Undefined if no part of the path belongs to the container.
 */
export function containerCgroupIn(path: CgroupPath, containerId: string): CgroupPath | undefined {
  const parts = path.split('/');
  const names = new Set([containerId, `cri-containerd-${containerId}.scope`]);
  const index = parts.findIndex((part) => names.has(part));
  return index === -1 ? undefined : parts.slice(0, index + 1).join('/');
}

/** Returns the container ID in a cgroup's name: the plain ID or a systemd scope. Undefined for other names. */
export function containerIdOf(name: string): string | undefined {
  const [, scope, plain] = /^(?:cri-containerd-([0-9a-f]{64})\.scope|([0-9a-f]{64}))$/.exec(name) ?? [];
  return scope ?? plain;
}

function plainId(containerId: string): string {
  if (!/^[A-Za-z0-9][A-Za-z0-9_.-]*$/.test(containerId)) throw invalidName(containerId);
  return containerId;
}

function invalidName(name: string): ShimError {
  const message = `invalid cgroup name ${JSON.stringify(name)}`;
  return new ShimError(Code.INVALID_ARGUMENT, Reason.CGROUP_UNAVAILABLE, message, { asked: name });
}
