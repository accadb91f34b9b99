/** What kubelet has admitted, as it writes it down, and where it leads. A hint: the kernel and the calls decide. */
export { decreaseHelpFor } from './decrease-help.ts';
export type { DecreaseReport } from './decrease.ts';
export { DecreaseHelp } from './decreases.ts';
export { boundedBy, foreseenOf, foreseenWith, foreseenWithPod, volumeChanges } from './pending-kubelet-resize.ts';
export type { PodForeseen } from './target.ts';
