/** Locks, slots, paced starts, shared calls, time limits, clocks, timers, and values that are loaded for their first use. */
export { steadyDeadline, steadyNow, systemClock, wallTime } from './clock.ts';
export type { Clock } from './clock.ts';
export { Lazy } from './lazy.ts';
export { KeyedLock } from './lock.ts';
export { PacedStarts, type Started } from './paced-starts.ts';
export { SharedCall } from './shared-call.ts';
export { Slots } from './slots.ts';
export { TimeLimit } from './time-limit.ts';
export { untilAborted } from './until-aborted.ts';
