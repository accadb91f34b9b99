/**
 * What a resize comes to, before anything is done. Pure: no clock, no file, no call; so every rule of order can be proved
 * by itself.
 */
export { compareCpu, compareLimits, sameCpu, sameMemory } from './plan/compare.ts';
export { isMemoryTight, isRaised, isWithin, podLimitsFor } from './plan/pod-limits.ts';
export { reversed, reversedContainer } from './plan/reversed.ts';
export { containerChanges, plan } from './plan/steps.ts';
