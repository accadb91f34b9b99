import { driverOf, qosClassOf } from '../../cgroups/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { QosClass } from './declared-pod.ts';

/** Returns the QoS class of a pod by the parent of its cgroup. Undefined when that is not one of kubelet's. */
export function qosOfCgroup({ cgroupParent }: Pick<PodDescription, 'cgroupParent'>): QosClass | undefined {
  const cgroup = driverOf(cgroupParent).podCgroup(cgroupParent);
  return cgroup === undefined ? undefined : qosClassOf(cgroup);
}
