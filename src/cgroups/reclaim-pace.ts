/** Computes how far and how fast to reclaim a cgroup's memory. Pure: no clock, no files. */
import { type Bytes, backOff, bytes, MiB } from '../core/index.ts';

const MOST_MARGIN = 256 * MiB;

/**
 * Returns the maximum usage in bytes at which the limit `target` can be set: the target minus a margin for memory that
 * processes allocate until then, while memory.high throttles them.
 *
 * For every 64 pages, the kernel delays a process that exceeds memory.high by the fraction o for 64 o² seconds, at most
 * 2 (mm/memcontrol.c, calculate_high_delay). So after t seconds, n threads that allocate as fast as they can exceed a
 * memory.high of H bytes by the cube root of 12288 n H² t. For targets from 64 MiB, an eighth of the target holds 4
 * threads for 2 seconds, longer than a runtime takes. 256 MiB are enough for targets above 8 GiB.
 *
 * The margin is at most half of the distance to the unreclaimable memory: usage would not fall below that, and a
 * memory.high below it would only delay the processes.
 */
export function goalOf(target: Bytes, unreclaimable: Bytes): Bytes {
  const margin = Math.min(target / 8, MOST_MARGIN, (target - unreclaimable) / 2);
  return bytes(Math.max(0, Math.floor(target - margin)));
}

/** Maximum time for a runtime to set a limit, in milliseconds, and number of threads that allocate meanwhile. */
const RUNTIME_MS = 2000;
const THREADS = 4;

/**
 * Whether a memory.high at the current usage keeps usage below the limit `target` until a runtime has set it, by the
 * formula of {@link goalOf} and for any behaviour of the processes.
 */
export function hasEnoughMargin(target: Bytes, used: Bytes): boolean {
  const throttled = Math.cbrt(12_288 * THREADS * (RUNTIME_MS / 1000) * used ** 2);
  return target - used >= Math.min(target / 8, MOST_MARGIN, throttled);
}

/** Minimum time to observe growth, in milliseconds. */
const WATCHED_MS = 200;

/**
 * Observes the growth of unreclaimable memory, for limits with a small margin. A process that allocates as fast as it
 * can fills a few MiB before a runtime has set the limit, and the kernel then kills it. A process that does not grow is
 * safe with any margin.
 */
export class Growth {
  #last: { readonly at: number; readonly unreclaimable: Bytes } | undefined;

  /**
   * Whether unreclaimable memory, at its current rate of growth, grows by less than `margin` bytes until a runtime has
   * set the limit. False until it has been observed long enough.
   * @param at milliseconds of a monotonic clock
   */
  fits(unreclaimable: Bytes, margin: number, at: number): boolean {
    const last = (this.#last ??= { at, unreclaimable });
    const watched = at - last.at;
    if (watched < WATCHED_MS) return false;
    this.#last = { at, unreclaimable };
    return ((unreclaimable - last.unreclaimable) / watched) * RUNTIME_MS < margin;
  }
}

/** Desired duration of one write to memory.reclaim. Deadlines and aborts take effect between two writes. */
const SHORT_MS = 50;
const LEAST_CHUNK = MiB;
const MOST_CHUNK = 1024 * MiB;
/** Size of the first write. Takes 2 ms on the test node, and at most SHORT_MS if the kernel drops 320 MiB/s or more. */
export const FIRST_CHUNK = bytes(16 * MiB);

/** Returns the bytes of the next write after the duration of the last one: doubles fast chunks and halves slow ones. */
export function nextChunk(chunk: Bytes, milliseconds: number): Bytes {
  if (milliseconds > SHORT_MS) return bytes(Math.max(LEAST_CHUNK, Math.floor(chunk / 2)));
  if (milliseconds < SHORT_MS / 4) return bytes(Math.min(MOST_CHUNK, chunk * 2));
  return chunk;
}

/** Returns the milliseconds to wait before the next check, after some checks in a row without a decrease. */
export const pauseAfter = (checks: number): number => backOff(checks + 1, 10, 200);
