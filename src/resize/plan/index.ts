/**
 * What a resize comes to, before anything is done. Pure: no clock, no file, no call; so every rule of order can be proved
 * by itself.
 */
export { isMemoryTight, hasRaisedContainer, fitsPreviousLimit, podLimitsFor } from './pod-limits.ts';
export { reversed } from './reversed.ts';
export { containerChanges, plan } from './steps.ts';
