/** kubelet's checkpoints of pod resources and of its CPU and memory managers: reading and watching them. They are never written. */
export type { EntryLimits, EntryRequests, PodEntry } from './checkpoint.ts';
export { KubeletFiles, noKubeletState } from './checkpoints.ts';
export type { KubeletState } from './checkpoints.ts';
export {
  cpuWeightToShares,
  exactMilliCpu,
  exactQuota,
  milliCpuToQuota,
  milliCpuToShares,
  overheadQuota,
  quotaToMilliCpu,
  sharesToMilliCpu,
} from './formulas.ts';
export type { MilliCpu } from './formulas.ts';
export { DEFAULT_THROTTLING_FACTOR, memoryHighOf, throttlingFactorOf } from './memory-qos.ts';
export type { MemoryAmounts } from './memory-qos.ts';
export { swapAfterResize } from './swap.ts';
export type { SwapAmounts } from './swap.ts';
export { ManagerFiles, noResourceManagers } from './resource-managers.ts';
export type { ResourceManagers } from './resource-managers.ts';
