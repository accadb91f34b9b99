import type { Clock } from '../../core/concurrency/index.ts';

/** Resolves after `ms` milliseconds, or when aborted. */
export function wait(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve();
      return;
    }
    const end = (): void => {
      stop();
      signal.removeEventListener('abort', end);
      resolve();
    };
    const stop = clock.after(ms, end);
    signal.addEventListener('abort', end);
  });
}
