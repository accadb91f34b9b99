/** What one connection, and all of them together, may make the proxy hold or do. */
export type { WaitingCalls } from './call-starts.ts';
export type { CollectedRequest } from './collected-requests.ts';
export { FLOOD_LIMIT, FloodMeter } from '../../http2/index.ts';
export { HeldBytes } from './held-bytes.ts';
export type { ClosedConnection } from './lingering.ts';
export type { OwnCalls } from './running-calls.ts';
export type { QueuedBytes } from './queued-bytes.ts';
export { SharedBudget, type SharedLimits } from './shared-budget.ts';
