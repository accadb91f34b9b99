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

/** The connection that ends to make room for a new one; undefined if the new one is refused. */
export interface Room<Each> {
  /** The process that holds most connections, if it holds {@link crowdOf} or more. */
  readonly crowd: Crowd | undefined;
  readonly ends: Each | undefined;
}

/**
 * Number of connections from which a process makes room for others. kubelet needs two, a client of the resize API one.
 */
export const crowdOf = (limit: number): number => limit / 4;

/** With fewer calls, a connection is hardly used. Those of kubelet have more within seconds, and thousands later. */
export const FEW_CALLS = 10;

/**
 * Returns the connection that ends to make room for a new one, when a limit is reached. A process with {@link crowdOf}
 * connections leaks them and must not keep kubelet out, so one of its connections ends, even with running calls. For
 * its own new connection, it only loses one without running calls. If there is no such process, only connections
 * without running calls end, preferably hardly used ones if there are {@link crowdOf} or more of them: a leaking
 * program of unknown process has more of these than kubelet, which makes many calls on few connections.
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

/** Returns the hardly used connections if there are many, otherwise all. */
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
