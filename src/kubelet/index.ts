/** Reads and watches kubelet's checkpoints of pod resources and its CPU and memory managers. Never writes them. */
export type { EntryLimits, EntryRequests, PodEntry } from './checkpoint.ts';
export { KubeletFiles, type KubeletState, noKubeletState } from './checkpoints.ts';
export {
  cpuWeightToShares,
  exactMilliCpu,
  type MilliCpu,
  milliCpuToQuota,
  milliCpuToShares,
  overheadQuota,
  quotaToMilliCpu,
  sharesToMilliCpu,
} from './formulas.ts';
export { type SwapAmounts, swapAfterResize, throttlingFactorOf } from './memory-formulas.ts';
export { ManagerFiles, noResourceManagers, type ResourceManagers } from './resource-managers.ts';
