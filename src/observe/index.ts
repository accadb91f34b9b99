/** Log, counters and metric families: how the shim reports what it does. */
export type * from './interfaces.ts';
export { noCounters, noLog } from './interfaces.ts';
export { FailureLog } from './failure-log.ts';
export { oncePerKey } from './once.ts';
export { endpointStates } from './readings.ts';
export type { BypassTimes, EndpointState, NodeReadings } from './readings.ts';
export { countersFields, createCounters } from './counters.ts';
export { families } from './families.ts';
export { Histogram, Reading, bounds } from './family.ts';
export type { Description, Family, Series } from './family.ts';
export { errorLines } from './journal-priority.ts';
export { createLog } from './log.ts';
export { LOG_LIMITS } from './log-limits.ts';
