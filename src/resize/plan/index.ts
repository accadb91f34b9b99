/**
 * The ordering rules of KEP-1287 and KEP-6030: from a pod's state and a target to ordered steps. Pure (no clock, no file, no
 * call), so that each rule can be tested by itself.
 */
export { ifTheyArrive, podStepsLeft } from './arriving.ts';
export { declaredSum, readingsOf } from './declared-sum.ts';
export type { CountedResource } from './declared-sum.ts';
export { MEMORY_HIGH, MEMORY_QOS_FILES, memoryQosAfter, sizeIn } from './memory-qos.ts';
export type { MemoryQosNode, PossibleRequests } from './memory-qos.ts';
export {
  isMemoryTight,
  hasRaisedContainer,
  fitsPreviousLimit,
  nextContainersExceed,
  fitsRolledBack,
  podLimitsBetween,
  podLimitsFor,
  stateWith,
} from './pod-limits.ts';
export { reversed, reversedContainer } from './reversed.ts';
export { containerChanges, loweredBurst, plan } from './steps.ts';
