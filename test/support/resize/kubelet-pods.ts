import fc from 'fast-check';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { LiveContainer, Settings } from '../../../src/sandbox/pods/pod-state.ts';

/** kubelet's results from requests and limits, by configuration: its formulas line by line, with Go's integers. */

/** Configurations of kubelet, and `none` for the defaults. */
export const features = ['none', 'MemoryQoS', 'TieredReservation', 'LimitedSwap', 'static CPUs'] as const;
export type Feature = (typeof features)[number];

const PAGE = 4096;
/** The node that kubelet runs on. */
export const NODE = { memory: 64 * 2 ** 30, swap: 8 * 2 ** 30 };

/** Memory in bytes. Absent: not declared. */
export interface Memory {
  readonly request: number | undefined;
  readonly limit: number | undefined;
}

/** memory.high (kubelet pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, generateLinuxContainerResources). */
export function kubeletHigh({ request = 0, limit = 0 }: Memory, factor = 0.9): string {
  if (request === limit) return 'max';
  const most = limit === 0 ? NODE.memory : limit;
  const high = Math.floor((request + (most - request) * factor) / PAGE) * PAGE;
  return high > request ? String(high) : 'max';
}

/** memory.swap.max (GetContainerSwapBehavior and calcSwapForBurstablePods). */
export function kubeletSwap({ request = 0, limit = 0 }: Memory): number {
  if (request === limit || request === 0) return 0;
  return Math.trunc((request / NODE.memory) * NODE.swap);
}

/** The settings that kubelet gives a container. */
export function kubeletSettings(feature: Feature, memory: Memory, cpus = '1'): Settings {
  const { request = 0, limit } = memory;
  switch (feature) {
    case 'none':
      return {};
    case 'MemoryQoS':
      return { 'memory.high': kubeletHigh(memory) };
    case 'TieredReservation': {
      const reserved = request === 0 ? {} : { [request === limit ? 'memory.min' : 'memory.low']: String(request) };
      return { 'memory.high': kubeletHigh(memory), 'memory.min': '0', 'memory.low': '0', ...reserved };
    }
    case 'LimitedSwap':
      return { 'memory.swap.max': String(kubeletSwap(memory)) };
    case 'static CPUs':
      return { 'cpuset.cpus': cpus };
  }
}

/** The way in which kubelet sets up the containers of a pod: its configuration, and requests as parts of the limits. */
export interface Setup {
  readonly feature: Feature;
  /** 1 means equal to the limit, and 0 means no request. */
  readonly parts: readonly number[];
}

export const setup: fc.Arbitrary<Setup> = fc.record({
  feature: fc.constantFrom(...features),
  parts: fc.array(fc.constantFrom(0, 0.25, 0.5, 1), { minLength: 10, maxLength: 10 }),
});

/** A request without a limit is a part of this amount. */
const WITHOUT_LIMIT = 256 * MiB;

/** Returns the containers with what kubelet derives for them. */
export const setUp = (containers: readonly LiveContainer[], { feature, parts }: Setup): readonly LiveContainer[] =>
  containers.map((container, index): LiveContainer => {
    const limit = container.memory === 'max' ? undefined : container.memory;
    const request = Math.floor((limit ?? WITHOUT_LIMIT) * (parts[index] ?? 0));
    const settings = kubeletSettings(feature, { request, limit }, String(index));
    return Object.keys(settings).length === 0 ? container : { ...container, settings };
  });
