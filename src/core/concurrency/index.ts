/** Locks, slots, time limits, clocks and timers. */
export { steadyDeadline, steadyNow, systemClock, wallDeadline, wallTime } from './clock.ts';
export type { Clock } from './clock.ts';
export { KeyedLock } from './lock.ts';
export { Slots } from './slots.ts';
export { TimeLimit } from './time-limit.ts';
