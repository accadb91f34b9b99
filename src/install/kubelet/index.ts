/** kubelet's part of an installation: where its runtime endpoint is set, and the change that points it at the shim. */
export { pointAtContainerd, runningKubelet, pointAtShim } from './change.ts';
export { type Kubelet, findKubelet } from './kubelet.ts';
export { Refusal } from './setting.ts';
