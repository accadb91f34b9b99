/** What one connection, and all of them together, may make the proxy hold or do. */
export type { CollectedRequest } from './collected-requests.ts';
export { FLOOD_LIMIT, FloodMeter } from './flood-meter.ts';
export { HeldBytes } from './held-bytes.ts';
export type { OwnCalls } from './running-calls.ts';
export type { QueuedBytes } from './queued-bytes.ts';
export { SharedBudget, type SharedLimits } from './shared-budget.ts';
