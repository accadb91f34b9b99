import { setTimeout as delay } from 'node:timers/promises';

export interface Patience {
  readonly timeoutMs: number;
  /** Aborted when a person wants it to end. */
  readonly signal: AbortSignal;
}

const AGAIN_MS = 250;

/**
 * Looks again and again, since neither systemd's units nor another process' calls tell us by themselves.
 * @param look says what is still missing; undefined when nothing is. Its rejection ends the waiting.
 */
export async function waitUntil(
  { timeoutMs, signal }: Patience,
  look: () => Promise<string | undefined>,
): Promise<void> {
  for (const until = Date.now() + timeoutMs; ; ) {
    const missing = await look();
    if (missing === undefined) return;
    signal.throwIfAborted();
    if (Date.now() >= until) throw new Error(`not within ${timeoutMs / 1000} s: ${missing}`);
    await delay(AGAIN_MS, undefined, { signal });
  }
}
