/** Whether kubelet uses the shim: the watch, wired to the rest of the daemon. */
export { EndpointDrift } from './endpoint-drift.ts';
