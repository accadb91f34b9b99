/** What handled calls share, without a server: their interface, budgets, statuses, error details and log fields. */
export { callFields } from './call-fields.ts';
export { inBackend, onBehalfOf } from './call.ts';
export type { CallTrace, HandlerCall, RawUnaryHandler } from './call.ts';
export { processOf } from './client-process.ts';
export { type Crowd, crowdOf, roomFor, tooManyConnections } from './connection-room.ts';
export { decodeStatusDetails } from './error-details.ts';
export type { ErrorInfo } from './error-details.ts';
export { API_LIMITS, CRI_LIMITS, GRPC_LIMITS } from './limits.ts';
export { metadataOf } from './metadata.ts';
export { hasLeft, serveReceived } from './serve.ts';
export type { EndedCall, ReceivedCall } from './serve.ts';
export { ServerBudget } from './server-budget.ts';
export { loggableError } from './status.ts';
export type { CallStatus } from './status.ts';
