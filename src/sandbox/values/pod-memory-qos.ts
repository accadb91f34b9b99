import type { CgroupPath, CgroupTree } from '../../cgroups/index.ts';
import { type Bytes, bytes, type Limit } from '../../core/index.ts';
import { throttlingFactorOf } from '../../kubelet/index.ts';
import { type ContainerDescription, ContainerState, type PodDescription } from '../../runtime/index.ts';
import { memorySizes } from '../admission/node-room.ts';
import { requestsAfter, requestsNow } from '../admission/pod-level.ts';
import { amountsNow } from '../admission/pod-requests.ts';
import type { Node } from '../node.ts';
import {
  MEMORY_HIGH,
  MEMORY_QOS_FILES,
  type MemoryQosNode,
  memoryQosAfter,
  type PossibleRequests,
  sizeIn,
  type WantedMemory,
} from '../plan/memory-qos-change.ts';
import { type DesiredPod, memoryRequestIn } from '../plan/resize-request.ts';
import type { UnifiedChange } from '../plan/step.ts';
import type { Limits, PodState, Settings } from '../pods/pod-state.ts';
import { podCgroup } from '../pods/read-pod.ts';
import { settingsIn, storedLimits } from '../pods/stored-limits.ts';

/** Files whose content kubelet's memory QoS has derived from values that a resize changes. */
export interface DerivedSettings {
  /** Their present content. */
  readonly now: Settings;
  readonly then: Settings;
}

/** Returns a resize's changes for these limits. Present values are the kernel's, or without cgroup the runtime's. */
export type DeriveSettings = (
  container: ContainerDescription,
  cgroup: CgroupPath | undefined,
  desired: Limits,
) => DerivedSettings;

/** The values of one pod that kubelet's memory QoS derives from limits and requests, after a resize. */
export interface MemoryQos {
  readonly ofContainer: DeriveSettings;
  /** @param memory the pod's own new memory limit, if it changes */
  readonly ofPod: (memory: Limit<Bytes> | undefined) => readonly UnifiedChange[];
}

/** Returns the memory QoS values after a resize. @param containers by their name in the pod */
export function memoryQosOf(
  node: Node,
  pod: PodDescription,
  state: PodState,
  desired: DesiredPod,
  containers: ReadonlyMap<string, ContainerDescription>,
): MemoryQos {
  const { tree } = node;
  const declared = declaredRequests(state, desired);
  const known: MemoryQosNode = {
    pageSize: tree.pageSize,
    sizes: () => memorySizes(node, pod),
    factor: factorOf([...containers.values()], declared, tree.pageSize),
  };
  return {
    ofContainer({ name, resources }, cgroup, { memory }) {
      const wanted = { limit: memory, request: memoryRequestIn(desired.memoryRequests, name) };
      if (wanted.limit === undefined && wanted.request === undefined) return NONE;
      const settings = cgroup === undefined ? settingsIn(resources) : filesOf(tree, cgroup, wanted);
      if (!isDerivable(settings, wanted)) return NONE;
      const limit = cgroup === undefined ? storedLimits(resources)?.memory : tree.readMemoryMax(cgroup);
      const requests = possibleRequests(declared.get(name), settings, wanted.request);
      return derived(settings, memoryQosAfter({ limit: limit ?? 'max', settings, requests, wanted }, known));
    },
    ofPod(memory) {
      const [before, after] = [requestsNow(state, desired).memory, requestsAfter(state, desired).memory];
      const wanted = { limit: memory, request: before === after ? undefined : after };
      if (wanted.limit === undefined && wanted.request === undefined) return [];
      const settings = filesOf(tree, podCgroup(pod), wanted);
      if (!isDerivable(settings, wanted)) return [];
      const requests = { declared: [before], supposed: [] };
      const { now, then } = derived(
        settings,
        memoryQosAfter({ limit: state.memory, settings, requests, wanted }, known),
      );
      return Object.entries(then).map(([key, to]) => ({ key, from: now[key] ?? to, to }));
    },
  };
}

const NONE: DerivedSettings = { now: {}, then: {} };

const derived = (settings: Settings, then: Settings): DerivedSettings => ({
  now: Object.fromEntries(Object.keys(then).map((file) => [file, settings[file] ?? ''])),
  then,
});

/**
 * Reads the files and includes a temporary memory.high: none exists under the pod's lock, and a derived value may have
 * the mark by chance. Reads only memory.high if the others do not matter.
 */
function filesOf(tree: CgroupTree, cgroup: CgroupPath, wanted: WantedMemory): Settings {
  const read = (file: string): Settings => {
    const found = tree.readSetting(cgroup, file);
    return found === undefined ? {} : { [file]: found.trim() };
  };
  const high = read(MEMORY_HIGH);
  if (!isDerivable(high, wanted)) return high;
  return MEMORY_QOS_FILES.reduce(
    (settings, file) => (file in settings ? settings : { ...settings, ...read(file) }),
    high,
  );
}

/** Whether a value may change: a new limit changes only memory.high, and `max` is not derived from a limit. */
function isDerivable(settings: Settings, { request }: WantedMemory): boolean {
  const high = sizeIn(settings, MEMORY_HIGH);
  return request !== undefined || (high !== undefined && high !== 'max');
}

function possibleRequests(
  declared: readonly Bytes[] = [],
  settings: Settings,
  wanted: Bytes | undefined,
): PossibleRequests {
  const reserved = [sizeIn(settings, 'memory.min'), sizeIn(settings, 'memory.low'), wanted];
  return {
    declared,
    supposed: reserved.flatMap((size) => (size === undefined || size === 'max' || size === 0 ? [] : [size])),
  };
}

/** Returns the possible present request of each container: from the last resize, and from kubelet or the spec. */
function declaredRequests(state: PodState, desired: DesiredPod): ReadonlyMap<string, readonly Bytes[]> {
  const inSpec = new Map(state.declared?.containers.map(({ name, requests }) => [name, requests?.memory]));
  return new Map(
    amountsNow(state, desired).map(({ name, requests, knows }) => {
      const newest = knows.memory ? (requests.memory ?? bytes(0)) : undefined;
      return [name, [newest, inSpec.get(name)].filter((request) => request !== undefined)];
    }),
  );
}

/**
 * Returns the throttling factor in kubelet's configuration if all containers of a pod that kubelet created with memory
 * QoS show the same one. Together with memory.high, kubelet sets memory.min, memory.low, or both.
 */
function factorOf(
  containers: readonly ContainerDescription[],
  declared: ReadonlyMap<string, readonly Bytes[]>,
  pageSize: Bytes,
): number | undefined {
  const factors = containers.flatMap(({ name, state, resources }) => {
    const settings = settingsIn(resources);
    const high = sizeIn(settings, 'memory.high');
    const hasReservation = 'memory.min' in settings || 'memory.low' in settings;
    const limit = storedLimits(resources)?.memory ?? 'max';
    if (
      state !== ContainerState.CONTAINER_RUNNING ||
      high === undefined ||
      high === 'max' ||
      !hasReservation ||
      limit === 'max'
    )
      return [];
    const found = (declared.get(name) ?? []).map((request) => throttlingFactorOf(high, { request, limit }, pageSize));
    return [found.find((factor) => factor !== undefined)];
  });
  const [factor, ...others] = new Set(factors);
  return others.length === 0 ? factor : undefined;
}
