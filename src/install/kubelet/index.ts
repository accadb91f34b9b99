/** kubelet's part of an installation: where its runtime endpoint is set, and the changes that point it at the shim. */
export { keepAtShim, pointAtContainerd, runningKubelet, pointAtShim, stoppedAtShim } from './change.ts';
export type { EnvironmentProblem } from './environment-files.ts';
export { filesOfUnit } from './files.ts';
export {
  type Kubelet,
  type KubeletFound,
  chainLines,
  findKubelet,
  readStoppedKubelet,
} from './kubelet.ts';
export { type Stop, restartNote, stopOf } from './restart-texts.ts';
export { readRestarts } from './restarts.ts';
export { Refusal } from './setting.ts';
