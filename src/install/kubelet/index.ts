/** kubelet's part of an installation: where its runtime endpoint is set, and the changes that point it at the shim. */
export { keepAtShim, pointAtContainerd, runningKubelet, pointAtShim } from './change.ts';
export { type Kubelet, type KubeletFound, chainLines, findKubelet } from './kubelet.ts';
export { Refusal } from './setting.ts';
