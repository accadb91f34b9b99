/** Resizes of pods: planned, admitted and applied as transactions. */
export { areRequestsFreed } from './admission/index.ts';
export { createResizeContext } from './context.ts';
export type { ResizeContext } from './context.ts';
export { Recovery, recover, restoreLeftHighs } from './execute/index.ts';
export { awaitComparable, measuredByRuntime } from './foresight/index.ts';
export type { AwaitComparableParts, PendingPodLimits } from './foresight/index.ts';
export { RecentResizes, ResizeHistory, apiRequester, criRequester, requesterText } from './history/index.ts';
export type { HistoryEntry, NewestValues, RecentResize, Requester } from './history/index.ts';
export { Journal, PodJournal } from './journal/index.ts';
export {
  amountTexts,
  describeStep,
  formatCpuLimit,
  formatMemory,
  formatShares,
  invalid,
  policyText,
} from './model/index.ts';
export type {
  Explanation,
  PodLimits,
  KnownValues,
  MemoryRequests,
  ResizePod,
  ResizeState,
  Step,
  StepRecord,
} from './model/index.ts';
export {
  applyContainerShares,
  applyVolumeSizes,
  raisePodForRestart,
  resizePod,
  updateContainer,
  updatePod,
} from './operations/index.ts';
export type { AdmitRestartParts, CallerOf, UpdateContainerParts, UpdatePodParts } from './operations/index.ts';
export { ResizeWatch, Resizes, readRequested, retryDelay } from './queue/index.ts';
export type {
  DryRun,
  PodRank,
  RequestedPod,
  RequestedResources,
  Resize,
  ResizeEvent,
  ResizeStore,
} from './queue/index.ts';
export { readPodView, overviewOf, podDirectory, podInfo, readinessOf, viewsOf } from './report/index.ts';
export type {
  ReadPodView,
  PendingKubeletResize,
  ActualValues,
  Overview,
  PodSummary,
  PodDirectory,
  PodInfoParts,
  PodRef,
  PodView,
} from './report/index.ts';
export { excessWarning, setVolumeAnnotated } from './volumes/index.ts';
