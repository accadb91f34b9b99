/** How calls reach their handlers: the table's types, the local gRPC server, and what all handlers decode and forward. */
export { decodeOrUndefined, decodeUpdate, orUndefined } from './decode.ts';
export { callerOf } from './caller.ts';
export { amendedHandler, forward, forwardToTheEnd } from './forward.ts';
export { interceptionOf, noInterceptors } from './interceptors.ts';
export type { AmendedCall, Amendment, Delay, Interceptors, MessageAmendment } from './interceptors.ts';
export { createLocalServer } from './local-server.ts';
export type { LocalHandlers } from './local-handlers.ts';
