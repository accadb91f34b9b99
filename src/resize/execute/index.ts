/** Runs a plan as a transaction: steps, verification, rollback, reclaim before a decrease, recovery after a crash. */
export type { CallersUpdate } from './actions.ts';
export { restoreLimits } from './container-step.ts';
export type { ContainerStepParts, RestoreLimitsParts } from './container-step.ts';
export { forgetDeleted } from './deleted-pods.ts';
export type { DeletedPodsParts } from './deleted-pods.ts';
export { ROLLBACK_MS, lowerMemory, reclaimBy, turnBy } from './lower-memory.ts';
export type { OnHigh } from './lower-memory.ts';
export { assertInTime, perform, planSteps, type PerformOptions } from './perform.ts';
export type { PerformParts } from './perform.ts';
export { recoverPod, tryRecoverPod, recover, restoreLeftHighs, settleUpdates } from './recover.ts';
export type { RecoverParts } from './recover.ts';
export { Recovery } from './recovery.ts';
export { withoutUnchanged } from './container-values.ts';
export { goingAlong, withPinned } from './update-message.ts';
export { verifyUpdate } from './verify-update.ts';
