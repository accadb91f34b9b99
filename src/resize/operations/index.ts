export { raisePodForRestart } from './admit-restart.ts';
export type { AdmitRestartParts } from './admit-restart.ts';
export { applyVolumeSizes } from './grow-volumes-later.ts';
export { forgetRecord, meetPod, restoreVolumes } from './pod-lifecycle.ts';
export { resizePod } from './resize-pod.ts';
export { updateContainer } from './update-container.ts';
export type { UpdateContainerParts } from './update-container.ts';
export { updatePod } from './update-pod.ts';
export type { UpdatePodParts } from './update-pod.ts';
