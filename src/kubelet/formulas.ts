/** kubelet's formulas for CPU. Pure. The kernel's own formulas are in src/cgroups. */
import { MIN_CPU_QUOTA } from '../cgroups/index.ts';
import {
  type CpuMax,
  type CpuShares,
  type CpuWeight,
  type Microseconds,
  cpuShares,
  microseconds,
} from '../core/quantities/index.ts';

/** Thousandths of a CPU. */
export type MilliCpu = number;

/** MinShares and MaxShares in kubelet pkg/kubelet/cm/helpers_linux.go: the bounds of cgroup v1's cpu.shares. */
const MIN_SHARES = 2;
const MAX_SHARES = 262_144;

/**
 * MilliCPUToQuota in kubelet pkg/kubelet/cm/helpers_linux.go: at least the minimum quota that the kernel accepts. kubelet's
 * function returns 0, no limit, for 0 milliCPU; this one returns the minimum.
 */
export const milliCpuToQuota = (milliCpu: MilliCpu, period: Microseconds): Microseconds =>
  microseconds(Math.max(Math.floor((milliCpu * period) / 1000), MIN_CPU_QUOTA));

/** MilliCPUToShares in kubelet pkg/kubelet/cm/helpers_linux.go. */
export const milliCpuToShares = (milliCpu: MilliCpu): CpuShares =>
  cpuShares(Math.min(MAX_SHARES, Math.max(MIN_SHARES, Math.floor((milliCpu * 1024) / 1000))));

/** SharesToMilliCPU in kubelet pkg/kubelet/cm/helpers_linux.go, which returns 0 for shares below the minimum; this one does not. */
export const sharesToMilliCpu = (shares: CpuShares): MilliCpu => Math.ceil((shares * 1000) / 1024);

/** cpuWeightToCPUShares in kubelet pkg/kubelet/cm/cgroup_v2_manager_linux.go: rounds down. */
export const cpuWeightToShares = (weight: CpuWeight): number => Math.floor(((weight - 1) * 262_142) / 9999) + 2;

/**
 * The pod limit for CPU is the limit of the containers plus the pod overhead (kubelet pkg/kubelet/cm/helpers_linux.go,
 * ResourceConfigForPod, and k8s.io/component-helpers resource/helpers.go, PodLimits). Returns what the overhead adds to a quota
 * with this period, in microseconds, rounded up.
 */
export const overheadQuota = (
  overhead: { readonly quota: Microseconds; readonly period: Microseconds },
  period: CpuMax['period'],
): number => Math.ceil((overhead.quota * period) / overhead.period);
