/** A client of gRPC for unary calls on a unix socket, on the wire code of the CRI server. */
export { Channel, STOPPING } from './channel.ts';
export type { BackendCall } from './channel.ts';
export { failure, hasNoAnswer, isUnsent } from './failure.ts';
