import type { Counters, Log } from '../../core/index.ts';

/** An open client connection. */
export interface Held {
  /** Calls that run. */
  readonly activeStreams: number;
  /** When its last call ended; when it opened, if it had none: its first call may be under way. */
  readonly lastUsed: number;
  /** Calls that have ended. */
  readonly calls: number;
  /** The process of the client, if it is known. */
  readonly peer: number | undefined;
}

/** A process that holds many connections. */
export interface Crowd {
  readonly pid: number;
  readonly held: number;
}

/** Which connection ends for a new one; undefined if the new one is refused. */
export interface Room<Each> {
  /** The process that holds most connections, if it holds {@link crowdOf} or more. */
  readonly crowd: Crowd | undefined;
  readonly ends: Each | undefined;
}

/** From here a process makes room for others. kubelet needs two connections, a client of the resize API one. */
export const crowdOf = (limit: number): number => limit / 4;

/** With fewer calls, a connection is hardly used. Those of kubelet have more within seconds, and thousands later. */
export const FEW_CALLS = 10;

/**
 * Returns which connection ends for a new one, because all of a limit are open. A process with {@link crowdOf}
 * connections makes room for the others, also with running calls: it leaks them, and must not shut kubelet out. Itself,
 * it gets a new one only for one of its own without running calls. Without such a process, only connections without
 * running calls end: if {@link crowdOf} or more are hardly used, of these. A program whose process is unknown and that
 * leaks connections has more of them than kubelet, which makes many calls on few.
 * @param peer the process of the new connection
 * @param all the oldest first
 */
export function roomFor<Each extends Held>(peer: number | undefined, all: readonly Each[]): Room<Each> {
  const crowd = largestCrowd(all);
  const own = all.filter((held) => peer !== undefined && held.peer === peer);
  if (own.length >= crowdOf(all.length)) return { crowd, ends: leastUsed(own) };
  if (crowd === undefined) return { crowd, ends: leastUsed(hardlyUsed(all)) };
  const theirs = all.filter((held) => held.peer === crowd.pid);
  return { crowd, ends: leastUsed(theirs) ?? theirs[0] };
}

function largestCrowd(all: readonly Held[]): Crowd | undefined {
  const counts = new Map<number, number>();
  for (const { peer } of all) if (peer !== undefined) counts.set(peer, (counts.get(peer) ?? 0) + 1);
  let largest: Crowd | undefined;
  for (const [pid, held] of counts)
    if (held >= crowdOf(all.length) && held > (largest?.held ?? 0)) largest = { pid, held };
  return largest;
}

/** Returns the connections that are hardly used, if there are many of them, and all otherwise. */
function hardlyUsed<Each extends Held>(all: readonly Each[]): readonly Each[] {
  const found = all.filter(({ activeStreams, calls }) => activeStreams === 0 && calls < FEW_CALLS);
  return found.length >= crowdOf(all.length) ? found : all;
}

/** Returns the connection without running calls that was used least recently. Its client connects again. */
function leastUsed<Each extends Held>(all: readonly Each[]): Each | undefined {
  let found: Each | undefined;
  for (const held of all) {
    if (held.activeStreams > 0) continue;
    if (found === undefined || held.lastUsed < found.lastUsed) found = held;
  }
  return found;
}

/** Returns what counts and logs each connection that is refused or ended because there are too many. */
export const tooManyConnections =
  (socket: string, log: Log, counters: Counters) =>
  (crowd: Crowd | undefined): void => {
    counters.refused('connections');
    log.warn({ listen: socket, ...crowd }, 'too many client connections');
  };
