/** What is on the node, and how it is resized. */
export { createResizeContext } from './context.ts';
export type { ResizeContext } from './context.ts';
export { describePod } from './describe-pod.ts';
export { recover } from './mend.ts';
export { PodJournal } from './pod-journal.ts';
export { Registry } from './registry.ts';
export type { KnownContainer } from './registry.ts';
export { raisePodForRestart } from './restart.ts';
export { resizePod } from './resize-pod.ts';
export type * from './resize-request.ts';
export * from './resizes/index.ts';
export { findCgroup, kernelResources } from './status.ts';
export { applyVolumeSizes } from './settle.ts';
export type { PodState, Step } from './state.ts';
export { describeStep } from './transaction.ts';
export type { StepRecord } from './transaction.ts';
export { updateContainer } from './update-container.ts';
export { updatePod } from './update-pod.ts';
