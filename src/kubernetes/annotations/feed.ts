import type { ApiPod } from './pod.ts';
import type { PodWatch } from './pod-watch.ts';
import type { Reach } from './reach.ts';
import { wait } from './wait.ts';
import { ApiRefusal, ApiUnreached, isGone } from '../client/index.ts';
import type { Clock } from '../../core/concurrency/index.ts';
import { retryDelay } from '../../resize/index.ts';

/** Receives the pods of the node. Must not throw. */
export interface PodAudience {
  /** Replaces all pods. */
  replace(pods: readonly ApiPod[]): void;
  /** A pod was added or changed. */
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

/** A watch that ends earlier without any event is a failure of the server, not its normal timeout. */
const SOON_MS = 1000;

/**
 * Lists and watches the pods of the node until aborted. Resumes after an interruption, and lists again if the resource version is
 * too old. Retries failures with increasing delays up to a minute. Never rejects.
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
      // A version that is too old is not a failure: it is normal after an interruption.
      else reach.failed(error);
      place.failures += 1;
      const asked = error instanceof ApiRefusal ? error.retryAfterMs : 0;
      await wait(clock, Math.max(asked, retryDelay(place.failures, random())), signal);
    }
  }
}

/** Progress of the watch. */
interface Place {
  /** Resource version; undefined: the pods have to be listed. */
  version: string | undefined;
  /** Consecutive failures. */
  failures: number;
}

/** Lists the pods if needed, and watches them until the watch ends. */
async function follow({ watch, audience, reach, clock }: FeedParts, place: Place, signal: AbortSignal): Promise<void> {
  if (place.version === undefined) {
    const { pods, version } = await watch.list(signal);
    audience.replace(pods);
    place.version = version;
  }
  const changes = await watch.changes(place.version, signal);
  reach.reached();
  const start = clock.now();
  let hasProgress = false;
  try {
    for await (const change of changes) {
      hasProgress = true;
      place.version = change.version;
      if (change.kind === 'present') audience.present(change.pod);
      if (change.kind === 'gone') audience.gone(change.pod.uid);
    }
  } finally {
    hasProgress ||= clock.now() - start >= SOON_MS;
    if (hasProgress) place.failures = 0;
  }
  if (!hasProgress) throw new ApiUnreached('the watch ended immediately');
}

const isStopped = (signal: AbortSignal): boolean => signal.aborted;
