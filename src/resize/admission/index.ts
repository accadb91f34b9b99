/** Admission: what a resize may not do, checked before anything changes. */
export {
  amountsAfter,
  amountsNow,
  requestOfShares,
  unchanged,
} from './container-amounts.ts';
export { assertNoRestart, assertNotAssigned, assertSwapStays } from './kubelet-containers.ts';
export { assertQosClassStays } from './qos-class.ts';
export { memorySizes, nodeAllocatable } from './allocatable.ts';
export type { AllocatableParts } from './allocatable.ts';
export { assertResizable } from './container-kind.ts';
export { assertReclaimable, blockingUse, isBelowUnreclaimable } from './memory-in-use.ts';
export { swapAfter } from './swap-after.ts';
export { assertNodeHasRoom, assertWithinCgroups } from './node-room.ts';
export { areRequestsFreed } from './freed-requests.ts';
export { addOverhead } from './overhead.ts';
export { fieldsSet, touchesCpu, touchesLimits, touchesMemory, parseLimits } from './parse-limits.ts';
export { RESOURCES, addRequests, admittedRequests, overheadRequests, podRequests } from './pod-requests.ts';
export type { TotalRequests } from './pod-requests.ts';
export { assertLimitsFit, assertRequestsFit } from './request-order.ts';
export { assertId, validatePodRequest, validateResources, withSubject } from './validate.ts';
