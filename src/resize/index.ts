/** Resizes of pods: planned, admitted and applied as transactions. */
export { areRequestsFreed } from './admission/pod-requests.ts';
export { type ResizeContext, createResizeContext } from './context.ts';
export { recover, restoreLeftHighs } from './execute/recover.ts';
export { Recovery } from './execute/recovery.ts';
export { type AwaitComparableParts, awaitComparable, measuredByRuntime } from './foresight/decrease-reclaimer.ts';
export type { PendingPodLimits } from './foresight/pending-resize.ts';
export {
  type HistoryEntry,
  type Requester,
  apiRequester,
  criRequester,
  requesterText,
} from './history/history-entry.ts';
export { ResizeHistory } from './history/history.ts';
export { NewestValues } from './history/newest-values.ts';
export { type RecentResize, RecentResizes } from './history/recent-resizes.ts';
export { PodJournal } from './journal/pod-journal.ts';
export { Journal } from './journal/store.ts';
export { amountTexts, formatCpuLimit, formatMemory, formatShares, invalid, policyText } from './model/amounts.ts';
export type { Explanation } from './model/failures.ts';
export type { MemoryRequests, ResizePod, ResizeState } from './model/resize-request.ts';
export { type Step, type StepRecord, describeStep } from './model/step.ts';
export type { KnownValues, PodLimits } from './model/value-changes.ts';
export { applyContainerShares, applyVolumeSizes } from './operations/pod-volumes.ts';
export { type AdmitRestartParts, raisePodForRestart } from './operations/raise-pod-limit.ts';
export { resizePod } from './operations/resize-pod.ts';
export { type CallerOf, type UpdateContainerParts, updateContainer } from './operations/update-container.ts';
export { type UpdatePodParts, updatePod } from './operations/update-pod.ts';
export type { ResizeStore } from './queue/records.ts';
export { type RequestedPod, type RequestedResources, readRequested } from './queue/request.ts';
export type { Resize, ResizeEvent } from './queue/resize-table.ts';
export { type DryRun, Resizes } from './queue/resizes.ts';
export { type PodRank, retryDelay } from './queue/retries.ts';
export { ResizeWatch } from './queue/watch.ts';
export { type Overview, type PodSummary, overviewOf } from './report/overview.ts';
export { type PodDirectory, type PodRef, podDirectory, viewsOf } from './report/pod-directory.ts';
export { type PodInfoParts, podInfo } from './report/pod-info.ts';
export {
  type ActualValues,
  type PendingKubeletResize,
  type PodView,
  type ReadPodView,
  readPodView,
} from './report/pod-view.ts';
export { readinessOf } from './report/readiness.ts';
export { excessWarning } from './volumes/policies.ts';
export { setVolumeAnnotated } from './volumes/volume-tracking.ts';
