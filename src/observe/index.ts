/** Log, counters and metric families: how the shim reports what it does. */
export { countersFields, createCounters } from './counters.ts';
export { FailureLog, oncePerKey } from './failure-log.ts';
export { families } from './families.ts';
export { type Description, type Family, Histogram, Reading, type Series, bounds } from './family.ts';
export {
  type Budget,
  type BypassTimes,
  type Counters,
  type EndpointState,
  type FailOpenReason,
  type IgnoredPodReason,
  type Log,
  type NodeReadings,
  type ReadinessCheck,
  type ReadinessReport,
  type ReclaimOutcome,
  type ResizeDirection,
  endpointStates,
  noCounters,
  noLog,
} from './interfaces.ts';
export { errorLines } from './journal-priority.ts';
export { createLog } from './log.ts';
