/** Where kubelet's runtime endpoint comes from: its process, flags, configuration, drop-ins and kubeadm's patch. Reads, never writes. */
export {
  type EndpointChain,
  type KubeadmPatch,
  type KubeletView,
  type Layer,
  layerName,
  readEndpointChain,
} from './chain.ts';
export { ENDPOINT_FLAG, type EndpointFlags, endpointFlagsOf } from './command-line.ts';
export { API_VERSION, DEFAULT_ENDPOINT, ENDPOINT_KEY, type FileForm, KIND, writtenIn } from './configuration.ts';
export { type Drift, type DriftPlaces, driftOf } from './drift.ts';
export { compareDropIns } from './files.ts';
export { type KubeletProcess, findKubeletProcess, kubeletOfUnit } from './process.ts';
export { isSameSocket, socketPathOf } from './socket.ts';
export { EndpointWatch, type EndpointWatchParts, USED_FILE } from './watch.ts';
