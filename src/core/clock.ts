/** Time and timers. Injected, so that tests do not have to wait. */
export interface Clock {
  /**
   * Milliseconds since some fixed time. For deadlines, pauses, rates and ages: a change of the system's time does not
   * affect it. {@link steadyNow} of {@link systemClock}.
   */
  now(): number;
  /** Milliseconds since the epoch, by the system's time. For what is shown or stored: it may jump forward and back. */
  wallTime(): number;
  /** Runs `action` after `ms` milliseconds. Returns a function that cancels it. */
  after(ms: number, action: () => void): () => void;
}

/** Milliseconds since the process start, by a clock that only goes forward. Node's timers use the same clock. */
export const steadyNow = (): number => performance.now();

/** Milliseconds since the epoch. The only use of system time: NTP steps or an administrator may change it. */
export const wallTime = (): number => Date.now();

/** Converts a deadline in the system's time, which grpc-js has just calculated from a timeout, to {@link steadyNow}. */
export const steadyDeadline = (deadline: number): number => steadyNow() + (deadline - wallTime());

/** The clocks of the system. Pending timers do not keep the process alive. */
export const systemClock: Clock = {
  now: steadyNow,
  wallTime,
  after(ms, action) {
    const timer = setTimeout(action, ms).unref();
    return () => clearTimeout(timer);
  },
};

/** The clocks of the system, with timers that keep the process alive: for a program that only waits. */
export const patientClock: Clock = {
  ...systemClock,
  after(ms, action) {
    const timer = setTimeout(action, ms);
    return () => clearTimeout(timer);
  },
};
