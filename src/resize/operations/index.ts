/** What a CRI or API call does: update a container, update a pod's own values, resize a pod, raise the limit for a restart. */
export { type AdmitRestartParts, raisePodForRestart } from './pod-limit/index.ts';
export { applyContainerShares, applyVolumeSizes } from './grow-volumes-later.ts';
export type { PodLifecycleParts } from './pod-lifecycle.ts';
export { forgetPodRecord, learnPodVolumes, restoreVolumes } from './pod-lifecycle.ts';
export { resizePod } from './resize-pod.ts';
export { updateContainer } from './update-container.ts';
export type { CallerOf, UpdateContainerParts } from './update-container.ts';
export { updatePod } from './update-pod.ts';
export type { UpdatePodParts } from './update-pod.ts';
