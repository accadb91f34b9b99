import { setTimeout as delay } from 'node:timers/promises';
import { steadyNow } from '../../core/concurrency/index.ts';

export interface Wait {
  readonly timeoutMs: number;
  /** Aborts on an interrupt. */
  readonly signal: AbortSignal;
}

const INTERVAL_MS = 250;

/**
 * Polls, because neither systemd units nor the calls of another process send notifications.
 * @param look returns what is still missing, or undefined. If it rejects, the wait ends.
 */
export async function waitUntil({ timeoutMs, signal }: Wait, look: () => Promise<string | undefined>): Promise<void> {
  for (const until = steadyNow() + timeoutMs; ; ) {
    const missing = await look();
    if (missing === undefined) return;
    signal.throwIfAborted();
    if (steadyNow() >= until) throw new Error(`timed out after ${timeoutMs / 1000} s: ${missing}`);
    await delay(INTERVAL_MS, undefined, { signal });
  }
}
