/** What a request changes besides what it names: the pod's limits and shares, requests, memory QoS, and what the runtime writes along. */
export { asksSwap, otherValues, swapAfterUpdate } from './callers-values.ts';
export type { OtherValues } from './callers-values.ts';
export { derivedPodLimits } from './derived-pod-limits.ts';
export { derivedPodShares } from './derived-pod-shares.ts';
export type { DerivedShares } from './derived-pod-shares.ts';
export { memoryQosOf } from './memory-qos.ts';
export type { DeriveSettings, DerivedSettings, MemoryQos, MemoryQosParts } from './memory-qos.ts';
export { requestsAfter, requestsNow } from './pod-requests.ts';
export { podSettingChanges } from './pod-settings.ts';
export { dropRepeatedShares } from './repeated-shares.ts';
export { criFields, desiredFields } from './requested-fields.ts';
export { storedStep, withStoredValues } from './stored-container-values.ts';
