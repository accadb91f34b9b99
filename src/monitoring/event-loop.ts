import { Histogram, families } from '../observe/index.ts';

const EVERY_MS = 200;

/**
 * Measures how late the event loop is. A timer of our own and not node:perf_hooks' monitor: that gives quantiles since the
 * start, which neither add up over nodes nor tell when it was.
 */
export function measureEventLoop(): { readonly family: Histogram<readonly []>; stop(): void } {
  const family = new Histogram(families.eventLoopLag);
  let due = performance.now() + EVERY_MS;
  const timer = setInterval(() => {
    const now = performance.now();
    family.observe([], Math.max(0, now - due) / 1000);
    due = now + EVERY_MS;
  }, EVERY_MS).unref();
  return { family, stop: () => clearInterval(timer) };
}
