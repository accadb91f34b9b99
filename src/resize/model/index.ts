/** The terms of a resize: limits, steps, targets, requests and their comparison. No I/O. */
export {
  amountTexts,
  cpuMaxOf,
  formatCpuLimit,
  formatMemory,
  formatMilli,
  formatShares,
  invalid,
  readCpuLimit,
  readCpuRequest,
  readMemoryLimit,
  readMemoryRequest,
} from './amounts.ts';
export { compareCpu, compareLimits, sameCpu, sameMemory } from './compare.ts';
export { absolute, directionOf, knownOf } from './direction.ts';
export { backendFailure, explained, failureOf, fitsLater, lateError, passes, waitsForRecovery } from './failures.ts';
export type { Explanation } from './failures.ts';
export type { KnownLimits, KnownValues, PodLimits } from './known-values.ts';
export { policyText } from './policy-text.ts';
export { memoryRequestIn } from './resize-request.ts';
export type {
  DesiredPod,
  MemoryRequests,
  ResizeOptions,
  ResizeOutcome,
  ResizePod,
} from './resize-request.ts';
export type { ResizeState } from './resize-state.ts';
export { onlyShrinking } from './shrinking.ts';
export { describeStep } from './step.ts';
export type { Change, ContainerStep, Step, StepRecord } from './step.ts';
export { stateAfter } from './target.ts';
export type { PodTarget, UnifiedChange } from './target.ts';
export { joinedChanges, memoryRequestChanges, requestedChanges, stepChanges } from './value-changes.ts';
export type { ContainerName, ValueChange } from './value-changes.ts';
