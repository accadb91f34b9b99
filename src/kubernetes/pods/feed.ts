import { type Clock, type Log, pause, type ReadinessCheck } from '../../core/index.ts';
import { retryDelay } from '../../sandbox/index.ts';
import { ApiRefusal, ApiUnreached, isGone, isTooNew, kindOf, wordsOf } from '../client/errors.ts';
import { type PodAudience, perObject } from './audience.ts';
import type { ApiPodIdentity } from './pod.ts';
import type { PodChange, PodWatch } from './pod-watch.ts';

export interface FeedOptions {
  readonly watch: PodWatch;
  readonly audience: PodAudience;
  readonly reach: Reach;
  /** An object was skipped because it is too large. Its names are undefined if they cannot be read. Must not throw. */
  readonly skipped: (pod: ApiPodIdentity | undefined) => void;
  readonly clock: Clock;
  /** 0 to 1, as Math.random. */
  readonly random: () => number;
}

/** A watch that ends earlier without any event is a failure of the server, not its normal timeout. */
const SOON_MS = 1000;

/**
 * Lists and watches the pods of the node until aborted. Resumes after an interruption, and lists again if the resource
 * version is too old. Like kubelet, lists from the API server's cache if it has the last version (client-go,
 * Reflector). Retries failures with increasing delays up to a minute. Never rejects.
 */
export async function feedPods(given: FeedOptions, signal: AbortSignal): Promise<void> {
  const options = { ...given, audience: perObject(given.audience) };
  const { reach, clock, random } = options;
  const place: Place = { version: '0', isListed: false, isCached: true, failures: 0 };
  while (!signal.aborted) {
    try {
      await follow(options, place, signal);
    } catch (error) {
      if (isStopped(signal)) return;
      // A version that is too old is not a failure: it is normal after an interruption.
      if (isGone(error) || isTooNew(error)) dropVersion(place);
      else reach.failed(error);
      place.failures += 1;
      const asked = error instanceof ApiRefusal ? error.retryAfterMs : 0;
      await wait(clock, Math.max(asked, retryDelay(place.failures, random())), signal);
    }
  }
}

/** Progress of the watch. */
interface Place {
  /** The last resource version; 0 before the first one. */
  version: string;
  /** Whether the pods are known up to this version. Otherwise they have to be listed. */
  isListed: boolean;
  /** Whether the API server may have a state that is as new as this version in its cache. */
  isCached: boolean;
  /** Consecutive failures. */
  failures: number;
}

/** Requires a new list: from etcd if the version came from a list of the cache. */
function dropVersion(place: Place): void {
  if (!place.isListed) place.isCached = false;
  place.isListed = false;
}

async function list({ watch, audience, skipped }: FeedOptions, place: Place, signal: AbortSignal): Promise<void> {
  const found = await watch.list(place.isCached ? place.version : undefined, signal);
  audience.replace(found.pods);
  for (const pod of found.skipped) skipped(pod);
  Object.assign(place, { version: found.version, isListed: true, isCached: true });
}

/** Lists the pods if needed, and watches them until the watch ends. */
async function follow(options: FeedOptions, place: Place, signal: AbortSignal): Promise<void> {
  const { watch, reach, clock } = options;
  if (!place.isListed) await list(options, place, signal);
  const changes = await watch.changes(place.version, signal);
  reach.reached();
  const start = clock.now();
  let hasProgress = false;
  try {
    for await (const change of changes) {
      hasProgress = true;
      place.version = change.version ?? place.version;
      pass(change, options);
    }
  } finally {
    hasProgress ||= clock.now() - start >= SOON_MS;
    if (hasProgress) place.failures = 0;
  }
  if (!hasProgress) throw new ApiUnreached('the watch ended immediately');
}

function pass(change: PodChange, { audience, skipped }: Pick<FeedOptions, 'audience' | 'skipped'>): void {
  if (change.kind === 'present') audience.present(change.pod);
  if (change.kind === 'gone') audience.gone(change.pod);
  if (change.kind !== 'skipped') return;
  // Its earlier state is out of date.
  if (change.pod !== undefined) audience.gone(change.pod);
  skipped(change.pod);
}

const isStopped = (signal: AbortSignal): boolean => signal.aborted;

/**
 * Tracks whether the API server can be reached, for readiness and the log: one line when the kind of failure changes,
 * and one when it is back.
 */
export class Reach {
  #trouble: { readonly kind: string; readonly says: string } | undefined;
  #isWatching = false;

  constructor(
    private readonly log: Log,
    private readonly nodeName: string,
  ) {}

  reached(): void {
    if (this.#trouble !== undefined || !this.#isWatching)
      this.log.info({ node: this.nodeName }, 'watch of pod annotations started');
    this.#trouble = undefined;
    this.#isWatching = true;
  }

  failed(error: unknown): void {
    const trouble = { kind: kindOf(error), says: wordsOf(error) };
    if (trouble.kind !== this.#trouble?.kind)
      this.log.warn({ node: this.nodeName, error: trouble.says }, 'watch of pod annotations failed; retrying');
    this.#trouble = trouble;
  }

  check(): ReadinessCheck {
    const name = 'kubernetes';
    if (this.#trouble !== undefined) return { name, ready: false, says: `pods are not watched: ${this.#trouble.says}` };
    if (!this.#isWatching) return { name, ready: false, says: 'pods are not watched yet' };
    return { name, ready: true, says: `pod annotations of node ${this.nodeName} are watched` };
  }
}

/** Resolves after `ms` milliseconds, or when aborted. */
export const wait = (clock: Clock, ms: number, signal: AbortSignal): Promise<void> =>
  pause(clock, ms, signal).catch(() => undefined);
