/** Resizes of pods: planned, admitted and applied as transactions. */
export { areRequestsFreed } from './admission/index.ts';
export { createResizeContext } from './context.ts';
export type { ResizeContext } from './context.ts';
export { Recovery, recover } from './execute/index.ts';
export { awaitComparable, measuredByRuntime } from './foresight/index.ts';
export type { ComparisonParts, PendingPodLimits } from './foresight/index.ts';
export { RecentResizes, ResizeHistory, apiRequester, criRequester, requesterText } from './history/index.ts';
export type { ClientProcess, HistoryEntry, NewestValues, RecentResize, Requester } from './history/index.ts';
export { Journal, PodJournal } from './journal/index.ts';
export {
  amountTexts,
  describeStep,
  formatCpuMax,
  formatMemory,
  formatShares,
  invalid,
  policyText,
} from './model/index.ts';
export type {
  PodLimits,
  KnownValues,
  MemoryRequests,
  ResizePod,
  ResizeState,
  Step,
  StepRecord,
  ValueChange,
} from './model/index.ts';
export { applyVolumeSizes, raisePodForRestart, resizePod, updateContainer, updatePod } from './operations/index.ts';
export type { AdmitRestartParts, CallerOf, UpdateContainerParts, UpdatePodParts } from './operations/index.ts';
export { ResizeWatch, Resizes, historyEntry, readRequested, retryDelay } from './queue/index.ts';
export type { PodRank, RequestedPod, RequestedResources, Resize, ResizeEvent, ResizeStore } from './queue/index.ts';
export { describePod, overviewOf, podDirectory, podInfo, readinessOf } from './report/index.ts';
export type {
  DescribePod,
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
