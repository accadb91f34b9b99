/** Where kubelet's runtime endpoint comes from: its process, flags, configuration, drop-ins and kubeadm's patch. Reads, never writes. */
export { type EndpointChain, type Layer, layerName, readEndpointChain } from './chain.ts';
export { API_VERSION, ENDPOINT_KEY, type FileForm, KIND, writtenIn } from './configuration.ts';
export { type Drift, type DriftPlaces, driftOf, isShimEnabled } from './drift.ts';
export { type Problem, compareDropIns, problemOf, readBytes } from './files.ts';
export { isSameSocket, socketPathOf } from './paths.ts';
export { ENDPOINT_FLAG, NotStartedYet, endpointFlagsOf, kubeletOfUnit, runsKubelet } from './process.ts';
export { type Assignment, invalidTextIn, printedVariables, wordsOfUnit } from './unit-command.ts';
export { EndpointWatch, USED_FILE } from './watch.ts';
