/** What needs grpc-js and node:http2: the servers for clients that connect to the resize API, and for compressed and malformed calls. */
export { createRawServer, rawMessage } from './raw-server.ts';
export type { RawServer } from './raw-server.ts';
export { codeFor, jsFailureOf, serveUnary, withinBudget } from './serve.ts';
export { ServedCall } from './served-call.ts';
export { SessionLimit } from './session-limit.ts';
export { SessionPeers, ownerOf } from './session-owner.ts';
