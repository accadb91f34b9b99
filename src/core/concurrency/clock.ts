/** The current time and timers. Injected, so that tests do not have to wait. */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number;
  /** Runs `action` after `ms` milliseconds. Returns a function that cancels it. */
  after(ms: number, action: () => void): () => void;
}

/** The system clock. Pending timers do not keep the process alive. */
export const systemClock: Clock = {
  now: () => Date.now(),
  after(ms, action) {
    const timer = setTimeout(action, ms).unref();
    return () => clearTimeout(timer);
  },
};
