import type { ApiPod } from './pod.ts';
import type { PodWatch } from './pod-watch.ts';
import type { Reach } from './reach.ts';
import { wait } from './wait.ts';
import { ApiRefusal, ApiUnreached, isGone } from '../client/index.ts';
import type { Clock } from '../../core/concurrency/index.ts';
import { retryDelay } from '../../resize/index.ts';

/** Who is told of the node's pods. Must not throw. */
export interface PodAudience {
  /** These are all that there are. */
  replace(pods: readonly ApiPod[]): void;
  /** One has come or changed. */
  present(pod: ApiPod): void;
  gone(uid: string): void;
}

export interface FeedParts {
  readonly watch: PodWatch;
  readonly audience: PodAudience;
  readonly reach: Reach;
  readonly clock: Clock;
  /** 0 to 1, as Math.random. */
  readonly random: () => number;
}

/** A watch that ends sooner and has told nothing is a server in trouble, not one whose time was up. */
const SOON_MS = 1000;

/**
 * Tells of the node's pods for as long as it may: lists them, watches from there, goes on after a cut where it was, lists
 * anew when that is too old. Whatever fails is tried again, later each time up to a minute. Never rejects.
 */
export async function feedPods(parts: FeedParts, signal: AbortSignal): Promise<void> {
  const { reach, clock, random } = parts;
  const place: Place = { version: undefined, failures: 0 };
  while (!signal.aborted) {
    try {
      await follow(parts, place, signal);
    } catch (error) {
      if (isStopped(signal)) return;
      if (isGone(error)) place.version = undefined;
      // Too old is no trouble: it is what happens to those who were away.
      else reach.failed(error);
      place.failures += 1;
      const asked = error instanceof ApiRefusal ? error.retryAfterMs : 0;
      await wait(clock, Math.max(asked, retryDelay(place.failures, random())), signal);
    }
  }
}

/** How far the watch has come. */
interface Place {
  /** Undefined: the pods have to be listed. */
  version: string | undefined;
  /** In a row. */
  failures: number;
}

/** One list, if need be, and one watch to its end. */
async function follow({ watch, audience, reach, clock }: FeedParts, place: Place, signal: AbortSignal): Promise<void> {
  if (place.version === undefined) {
    const { pods, version } = await watch.list(signal);
    audience.replace(pods);
    place.version = version;
  }
  const changes = await watch.changes(place.version, signal);
  reach.reached();
  const start = clock.now();
  let isFruitful = false;
  try {
    for await (const change of changes) {
      isFruitful = true;
      place.version = change.version;
      if (change.kind === 'present') audience.present(change.pod);
      if (change.kind === 'gone') audience.gone(change.pod.uid);
    }
  } finally {
    isFruitful ||= clock.now() - start >= SOON_MS;
    if (isFruitful) place.failures = 0;
  }
  if (!isFruitful) throw new ApiUnreached('the watch ended immediately');
}

const isStopped = (signal: AbortSignal): boolean => signal.aborted;
