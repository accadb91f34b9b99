/** What is kubelet's: its checkpoint files and its formulas. */
export type { EntryLimits, PodEntry } from './checkpoint.ts';
export { KubeletFiles, noKubeletState } from './checkpoints.ts';
export type { KubeletState } from './checkpoints.ts';
export { cpuWeightToShares, milliCpuToQuota, milliCpuToShares, overheadQuota, sharesToMilliCpu } from './formulas.ts';
export type { MilliCpu } from './formulas.ts';
