/** What handled calls share, without a server: their interface, budgets, statuses, error details and log fields. */
export {
  type CallTrace,
  type HandlerCall,
  type RawUnaryHandler,
  callFields,
  inBackend,
  metadataOf,
  onBehalfOf,
  processOf,
} from './call.ts';
export { type Crowd, roomFor, tooManyConnections } from './connection-room.ts';
export { type EndedCall, type ReceivedCall, hasLeft, serveReceived } from './serve.ts';
export { API_LIMITS, CRI_LIMITS, ServerBudget } from './server-budget.ts';
export { type ErrorInfo, decodeStatusDetails } from './status.ts';
