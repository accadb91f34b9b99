/** A client of gRPC for unary calls on a unix socket, on the wire code of the CRI server. */
export { Channel } from './channel.ts';
export { failure, hasNoAnswer, isUnsent } from './failure.ts';
