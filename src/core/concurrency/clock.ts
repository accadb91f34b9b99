/** What time it is, and what is done later. Injected, so that tests need not wait. */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number;
  /** Runs `action` after so many milliseconds, unless the function that it gives is called before. */
  after(ms: number, action: () => void): () => void;
}

/** The real one. What waits does not keep the process alive. */
export const systemClock: Clock = {
  now: () => Date.now(),
  after(ms, action) {
    const timer = setTimeout(action, ms).unref();
    return () => clearTimeout(timer);
  },
};
