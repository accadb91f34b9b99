/** The resize API: the gRPC service criresize.v1alpha1.ResizeService and health checks on a socket of its own. */
export { openResizeApi } from './resize-api.ts';
