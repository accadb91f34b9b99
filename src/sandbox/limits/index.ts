/** Limits and settings of pods and containers: their types, and what CRI messages and cgroup files say of them. */
export { SWAP_MAX, readSettings, settingsIn, swapIn } from './container-settings.ts';
export type { ContainerLimits, EffectiveLimits, Limits, Settings } from './limits.ts';
export { storedLimits, storedValues } from './stored-limits.ts';
export type { StoredValues } from './stored-limits.ts';
