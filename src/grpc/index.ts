/** What the shim's gRPC servers share: serving unary calls, mapping errors to statuses, error details, log fields. */
export { callFields } from './call-fields.ts';
export { deadlineOf, inBackend, onBehalfOf } from './call.ts';
export type { CallTrace, RawStreamHandler, RawUnaryHandler } from './call.ts';
export { SessionPeers, clientOf } from './session-owner.ts';
export type { ClientProcess } from './session-owner.ts';
export { type Crowd, crowdOf, roomFor, tooManyConnections } from './connection-room.ts';
export { decodeStatusDetails } from './error-details.ts';
export type { ErrorInfo } from './error-details.ts';
export { API_LIMITS, CRI_LIMITS, GRPC_LIMITS } from './limits.ts';
export { createRawServer, rawMessage } from './raw-server.ts';
export type { RawServer } from './raw-server.ts';
export { codeFor, failureOf, serveStream, serveUnary, withinBudget } from './serve.ts';
export type { EndedCall } from './serve.ts';
export { SessionLimit } from './session-limit.ts';
export { ownerOf } from './session-owner.ts';
export { loggableError } from './status.ts';
