import { Reason, ShimError, messageOf } from '../../core/errors/index.ts';
import type { Log } from '../../observe/index.ts';
import { wait } from '../pods/index.ts';
import type { Clock } from '../../core/concurrency/index.ts';
import { type Resize, type Resizes, retryDelay } from '../../resize/index.ts';

/** Passes on the states of all resizes, starting with unfinished ones, until aborted. Never rejects. */
export async function followResizes(
  parts: {
    readonly resizes: Pick<Resizes, 'watch' | 'find'>;
    readonly clock: Clock;
    /** 0 to 1, as Math.random. */
    readonly random: () => number;
    readonly log: Log;
  },
  reached: (resize: Resize) => void,
  signal: AbortSignal,
): Promise<void> {
  const { resizes, clock, random, log } = parts;
  for (let failures = 0; !signal.aborted; ) {
    try {
      const watch = resizes.watch();
      signal.addEventListener('abort', () => watch.end(), { once: true });
      for await (const { resize, what } of watch) {
        // Requests of the CRI have events too, and are in no queue.
        const found = what.kind === 'state' ? resizes.find(resize) : undefined;
        if (found !== undefined) reached(found);
        failures = 0;
      }
    } catch (error) {
      if (error instanceof ShimError && error.reason === Reason.STOPPING) return;
      // Too many watchers, or this one was too slow and missed events: later ones are still passed on.
      failures += 1;
      log.warn({ error: messageOf(error) }, 'watch of resizes failed; retrying');
      await wait(clock, retryDelay(failures, random()), signal);
    }
  }
}
