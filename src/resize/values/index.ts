/** What a request changes other than what it names: the pod's limits and shares, requests, memory QoS, what the runtime writes along. */
export { asksSwap, otherValues, swapAfterUpdate } from './callers-values.ts';
export { derivedPodLimits } from './derived-pod-limits.ts';
export { derivedPodShares } from './derived-pod-shares.ts';
export { withInheritedLimits } from './inherited-limits.ts';
export { memoryQosOf } from './derived-memory-qos.ts';
export type { DeriveSettings } from './derived-memory-qos.ts';
export { requestsAfter, requestsNow } from './requests-after.ts';
export { podSettingChanges } from './pod-settings.ts';
export { dropRepeatedShares } from './repeated-shares.ts';
export { criFields, desiredFields } from './pod-fields.ts';
export { storedStep, withStoredValues } from './stored-container-values.ts';
