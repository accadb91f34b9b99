/**
 * kubelet's formulas for CPU: the only place that converts between thousandths of a CPU, quotas and shares. Pure. The
 * kernel's own formulas are in src/cgroups. Compared with kubelet 1.36 and 1.37.
 */

import { MIN_CPU_QUOTA } from '../cgroups/values/controller-files.ts';
import { MAX_CPU_SHARES, MIN_CPU_SHARES } from '../cgroups/values/conversions.ts';
import {
  type CpuMax,
  type CpuShares,
  type CpuWeight,
  cpuShares,
  type Microseconds,
  microseconds,
} from '../core/quantities/numbers.ts';

/** Thousandths of a CPU. */
export type MilliCpu = number;

/** MilliCPUToCPU and SharesPerCPU in kubelet pkg/kubelet/cm/helpers_linux.go. */
const MILLI_CPU_PER_CPU = 1000;
const SHARES_PER_CPU = 1024;

/** Returns the quota for milliCPU per `period` (microseconds). Not rounded, without the kernel's minimum. */
export const exactQuota = (milliCpu: MilliCpu, period: number): number => (milliCpu * period) / MILLI_CPU_PER_CPU;

/** Returns the milliCPU of a quota per `period`. Not rounded. */
export const exactMilliCpu = (quota: number, period: number): MilliCpu => (quota * MILLI_CPU_PER_CPU) / period;

/** QuotaToMilliCPU in kubelet pkg/kubelet/cm/helpers_linux.go: rounds down. */
export const quotaToMilliCpu = (quota: Microseconds, period: Microseconds): MilliCpu =>
  Math.floor(exactMilliCpu(quota, period));

/**
 * MilliCPUToQuota in kubelet pkg/kubelet/cm/helpers_linux.go: at least the minimum quota that the kernel accepts.
 * kubelet's function returns 0, no limit, for 0 milliCPU; this one returns the minimum.
 */
export const milliCpuToQuota = (milliCpu: MilliCpu, period: Microseconds): Microseconds =>
  microseconds(Math.max(Math.floor(exactQuota(milliCpu, period)), MIN_CPU_QUOTA));

/** MilliCPUToShares in kubelet pkg/kubelet/cm/helpers_linux.go, MinShares to MaxShares (cgroup v1 cpu.shares). */
export const milliCpuToShares = (milliCpu: MilliCpu): CpuShares => {
  const shares = Math.floor((milliCpu * SHARES_PER_CPU) / MILLI_CPU_PER_CPU);
  return cpuShares(Math.min(MAX_CPU_SHARES, Math.max(MIN_CPU_SHARES, shares)));
};

/** SharesToMilliCPU in kubelet pkg/kubelet/cm/helpers_linux.go, without its 0 for shares below the minimum. */
export const sharesToMilliCpu = (shares: CpuShares): MilliCpu =>
  Math.ceil((shares * MILLI_CPU_PER_CPU) / SHARES_PER_CPU);

/** cpuWeightToCPUShares in kubelet pkg/kubelet/cm/cgroup_v2_manager_linux.go: rounds down. */
export const cpuWeightToShares = (weight: CpuWeight): number =>
  Math.floor(((weight - 1) * (MAX_CPU_SHARES - MIN_CPU_SHARES)) / 9999) + MIN_CPU_SHARES;

/**
 * The pod limit for CPU is the limit of the containers plus the pod overhead (kubelet pkg/kubelet/cm/helpers_linux.go,
 * ResourceConfigForPod, and k8s.io/component-helpers resource/helpers.go, PodLimits). Returns the quota that the
 * overhead adds for this period, in microseconds, rounded up.
 */
export const overheadQuota = (
  overhead: { readonly quota: Microseconds; readonly period: Microseconds },
  period: CpuMax['period'],
): number => Math.ceil((overhead.quota * period) / overhead.period);
