/** Turns: which nodes may be changed now, by a Lease that the pods of all nodes write. */
export { leaseStore } from './lease.ts';
export { loggingChanges, pause, retry, sleep } from './retry.ts';
export type { RetryOptions } from './retry.ts';
export { FAILED, HALTED, PAUSED, VOUCHED } from './state.ts';
export { haltAll, takeTurn, unfinishedTurn, vouchedCanaries, vouchFor } from './turn.ts';
export type { Turn, TurnContext } from './turn.ts';
