/** What kubelet has admitted, as it writes it down, and where it leads. A hint: the kernel and the calls decide. */
export type { EntryLimits, PodEntry } from './checkpoint.ts';
export { KubeletFiles, noKubeletState } from './checkpoints.ts';
export type { KubeletState } from './checkpoints.ts';
export {
  agrees,
  agreesWithPod,
  foresee,
  foreseenState,
  isMemoryDone,
  isUnderWay,
  noLowerThan,
} from './target.ts';
export type { Foreseen, ForeseenLimits, PodForeseen } from './target.ts';
export { DecreaseHelp } from './decreases.ts';
export type { Decrease, DecreaseReport, Decreases, DeferredListener } from './decrease.ts';
