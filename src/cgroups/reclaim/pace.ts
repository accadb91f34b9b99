/** How far and how fast a cgroup's memory is reclaimed: the figures alone. No clock, no file. */
import { bytes } from '../../core/quantities/index.ts';
import type { Bytes } from '../../core/quantities/index.ts';

const MI = 1024 * 1024;
const MOST_MARGIN = 256 * MI;

/**
 * Up to how much a cgroup may use when the limit `target` is set, in bytes: the target less a margin for what its processes take
 * until then, held back by memory.high.
 *
 * The kernel lets a process that is over memory.high by the share o of it sleep for 64 o² seconds, 2 at most, for every 64 pages
 * that it takes (mm/memcontrol.c, calculate_high_delay). So n threads that allocate as fast as they can are over a
 * memory.high of H bytes by the cube root of 12288 n H² t after t seconds. An eighth of the target outlasts 4 threads for
 * 2 seconds, longer than a runtime takes, from 64 MiB on; 256 MiB do for all that is larger than 8 GiB.
 *
 * Never more than half-way down to what cannot be reclaimed: use would not get there, and a memory.high under it would put the
 * processes to sleep for nothing.
 */
export function goalOf(target: Bytes, unreclaimable: Bytes): Bytes {
  const margin = Math.min(target / 8, MOST_MARGIN, (target - unreclaimable) / 2);
  return bytes(Math.max(0, Math.floor(target - margin)));
}

/** How long a runtime may take to set a limit, in milliseconds, and with how many threads a process may allocate meanwhile. */
const RUNTIME_MS = 2000;
const THREADS = 4;

/**
 * Whether memory.high, held where so many bytes are in use, keeps use under the limit `target` until a runtime has set it, whatever
 * the processes do: by the formula above.
 */
export function hasEnoughMargin(target: Bytes, used: Bytes): boolean {
  const throttled = Math.cbrt(12_288 * THREADS * (RUNTIME_MS / 1000) * used ** 2);
  return target - used >= Math.min(target / 8, MOST_MARGIN, throttled);
}

/** How long growth is watched before it is judged, in milliseconds. */
const WATCHED_MS = 200;

/**
 * Where there is less room: what cannot be reclaimed, watched over time. A process that takes as fast as it can fills a few
 * MiB before a runtime has set the limit, and the kernel kills it then; one that has what it needs may be lowered however little is left.
 */
export class Growth {
  #last: { readonly at: number; readonly unreclaimable: Bytes } | undefined;

  /**
   * Whether what cannot be reclaimed, growing as it has since the look before, stays within `room` bytes for as long as a runtime may take.
   * Not known, and so false, until it has been watched for a while. `at` in milliseconds, of a clock that never goes back.
   */
  fits(unreclaimable: Bytes, room: number, at: number): boolean {
    const last = (this.#last ??= { at, unreclaimable });
    const watched = at - last.at;
    if (watched < WATCHED_MS) return false;
    this.#last = { at, unreclaimable };
    return ((unreclaimable - last.unreclaimable) / watched) * RUNTIME_MS < room;
  }
}

/** How long one write to memory.reclaim should take: a deadline or an abort is noticed between two. */
const SHORT_MS = 50;
const LEAST_CHUNK = MI;
const MOST_CHUNK = 1024 * MI;
/** Takes 2 ms on the test node, and less than SHORT_MS wherever page cache is dropped at 320 MiB/s. */
export const FIRST_CHUNK = bytes(16 * MI);

/** How much to ask for next, in bytes, after a chunk took so long: what takes short is doubled, what takes long is halved. */
export function nextChunk(chunk: Bytes, milliseconds: number): Bytes {
  if (milliseconds > SHORT_MS) return bytes(Math.max(LEAST_CHUNK, Math.floor(chunk / 2)));
  if (milliseconds < SHORT_MS / 4) return bytes(Math.min(MOST_CHUNK, chunk * 2));
  return chunk;
}

/** How long to wait before looking again, in milliseconds, when so many looks in a row saw no less in use. */
export const pauseAfter = (looks: number): number => Math.min(200, 10 * 2 ** Math.min(looks, 10));
