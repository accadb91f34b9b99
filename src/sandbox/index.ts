/** Pods and their containers on this node, with the limits that the kernel reports, and all changes of these limits. */
export { areRequestsFreed } from './admission/pod-requests.ts';
export { connectDecreaseReclaimer, createNode } from './create-node.ts';
export { awaitComparable, DecreaseReclaimer, measuredByRuntime } from './foresight/decrease-reclaimer.ts';
export {
  apiRequester,
  criRequester,
  type HistoryEntry,
  type Requester,
  requesterText,
} from './history/history-entry.ts';
export { type RecentResize, RecentResizes } from './history/recent-resizes.ts';
export { PodJournal } from './journal/pod-journal.ts';
export { Journal } from './journal/store.ts';
export type { Node } from './node.ts';
export { applyContainerShares, applySizeLimits, applyVolumeSizes } from './operations/pod-volumes.ts';
export { raisePodForRestart } from './operations/raise-pod-limit.ts';
export { resizePod } from './operations/resize-pod.ts';
export { type CallerOf, updateContainer } from './operations/update-container.ts';
export { updatePod } from './operations/update-pod.ts';
export { amountTexts, formatCpuLimit, formatMemory, formatShares, invalid } from './plan/amounts.ts';
export type { Explanation } from './plan/failures.ts';
export type { MemoryRequests, ResizeState } from './plan/resize-request.ts';
export { describeStep, type Step, type StepRecord } from './plan/step.ts';
export type { KnownValues, PodLimits, ValueChange } from './plan/value-changes.ts';
export { policyText } from './plan/value-changes.ts';
export { idsInCgroup } from './pods/container-cgroups.ts';
export { qosOfCgroup } from './pods/declare-pod.ts';
export type { Amounts, AppRestartPolicy, DeclaredPod, QosClass, ResizePolicy } from './pods/declared-pod.ts';
export type { FailOpen } from './pods/fail-open.ts';
export { kernelResources } from './pods/kernel-resources.ts';
export { fullName } from './pods/names.ts';
export { identityOf, isStaticPod, newestSandbox, type PodIdentity } from './pods/pod-identity.ts';
export {
  type NodeAllocatable,
  noNodeAllocatable,
  noPodSpecs,
  type PodSpec,
  type PodSpecs,
  type SpecContainer,
} from './pods/pod-spec.ts';
export type { PodState } from './pods/pod-state.ts';
export { Registry } from './pods/registry.ts';
export { volumeTotals } from './pods/volumes.ts';
export type { ResizeStore } from './queue/records.ts';
export { type RequestedPod, type RequestedResources, readRequested } from './queue/request.ts';
export type { Resize, ResizeEvent } from './queue/resize-table.ts';
export { type DryRun, Resizes } from './queue/resizes.ts';
export { type PodRank, retryDelay } from './queue/retries.ts';
export { ResizeWatch } from './queue/watch.ts';
export { type Overview, overviewOf, type PodSummary } from './report/overview.ts';
export { type PodDirectory, type PodRef, podDirectory, viewsOf } from './report/pod-directory.ts';
export { podInfo } from './report/pod-info.ts';
export {
  type ActualValues,
  type PendingKubeletResize,
  type PodView,
  type ReadPodView,
  readPodView,
} from './report/pod-view.ts';
export { readinessOf } from './report/readiness.ts';
export { recover, restoreLeftHighs } from './transaction/recover.ts';
export { Recovery } from './transaction/recovery.ts';
export { excesses, excessWarning } from './volumes/policies.ts';
export { setVolumeAnnotated } from './volumes/volume-tracking.ts';
