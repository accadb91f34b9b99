import { Histogram, families } from '../observe/index.ts';

const EVERY_MS = 200;

/**
 * Measures the lag of the event loop with a timer. The monitor of node:perf_hooks only has quantiles since the start, which can
 * neither be aggregated over nodes nor show when the lag occurred.
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
