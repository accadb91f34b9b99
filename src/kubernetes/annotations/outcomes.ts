import { type Clock, Reason } from '../../core/index.ts';
import { type Explanation, formatMemory, type PodIdentity, type PodState, type Resize } from '../../sandbox/index.ts';
import { type ApiPodIdentity, keyOf } from '../pods/pod.ts';
import type { EventReason, PodEvent } from './events.ts';

/** Reasons that do not concern the request itself. Such a request is retried. */
const PASSING: ReadonlySet<string> = new Set([
  Reason.BACKEND_UNAVAILABLE,
  Reason.DEADLINE,
  Reason.JOURNAL_UNAVAILABLE,
  Reason.TOO_MANY_RESIZES,
  Reason.AMBIGUOUS_POD,
  Reason.STOPPING,
]);
/** Whether the reason does not concern the request itself, so that the request is retried. */
export const isPassing = (reason: string | undefined): boolean => reason !== undefined && PASSING.has(reason);

export interface OutcomesOptions {
  readonly post: (event: PodEvent) => void;
  readonly clock: Clock;
}

/**
 * Posts events about the requests that a pod's annotations make. Each outcome is posted once for each request, however
 * often the request is retried.
 */
export class Outcomes {
  /** The outcomes already posted for the last request, and its text, by pod and volume. */
  readonly #posted = new Map<string, Map<string, { readonly text: string; readonly posted: Set<string> }>>();

  constructor(private readonly options: OutcomesOptions) {}

  /** Starts a request for this volume. A new text makes all its outcomes be posted again, including repeated ones. */
  begin(pod: PodIdentity, volume: string, text: string): void {
    if (this.#posted.get(keyOf(pod))?.get(volume)?.text === text) return;
    const ofPod =
      this.#posted.get(keyOf(pod)) ?? new Map<string, { readonly text: string; readonly posted: Set<string> }>();
    this.#posted.set(keyOf(pod), ofPod.set(volume, { text, posted: new Set() }));
  }

  /** Handles a removed annotation. Added again, it is a new request. `waited`: text of an unfinished request. */
  withdrawn(pod: PodIdentity, volume: string, waited: string | undefined): void {
    if (waited !== undefined) this.#canceled(pod, volume, waited, 'its annotation was removed');
    this.#posted.get(keyOf(pod))?.delete(volume);
  }

  forget(pod: ApiPodIdentity): void {
    this.#posted.delete(keyOf(pod));
  }

  /** Posts the event for a resize that has reached a state. `volumes`: those to report, with requested texts. */
  report(resize: Resize, volumes: readonly (readonly [string, string])[]): void {
    const { pod, state, reason = '', message = '' } = resize;
    for (const [volume, text] of volumes) {
      switch (state) {
        case 'Completed':
          this.#once(pod, volume, text, 'VolumeResized', '', resizedNote(volume, text, resize));
          break;
        case 'Deferred':
          this.deferred(pod, volume, text, { reason, message });
          break;
        case 'Infeasible':
          this.infeasible(pod, volume, text, { reason, message });
          break;
        case 'Canceled':
          this.#canceled(pod, volume, text, message);
          break;
        case 'Proposed':
        case 'InProgress':
      }
    }
  }

  deferred(pod: PodIdentity, volume: string, text: string, why: Explanation): void {
    this.#once(pod, volume, text, 'VolumeResizeDeferred', why.reason, deferredNote(volume, text, why.message));
  }

  infeasible(pod: PodIdentity, volume: string, text: string, why: Explanation): void {
    const note = infeasibleNote(volume, text, why.reason, why.message);
    this.#once(pod, volume, text, 'VolumeResizeInfeasible', why.reason, note);
  }

  #canceled(pod: PodIdentity, volume: string, text: string, why: string): void {
    this.#once(pod, volume, text, 'VolumeResizeCanceled', '', canceledNote(volume, text, why));
  }

  #once(pod: PodIdentity, volume: string, text: string, reason: EventReason, why: string, note: string): void {
    // Also for a request that an earlier shim has started.
    this.begin(pod, volume, text);
    const posted = this.#posted.get(keyOf(pod))?.get(volume)?.posted;
    const key = `${reason} ${why}`;
    if (posted === undefined || posted.has(key)) return;
    posted.add(key);
    this.options.post({ pod, reason, note, at: this.options.clock.wallTime() });
  }
}

/** The texts of these events. Sizes are Kubernetes quantities; the requested size is the text of the annotation. */

function resizedNote(volume: string, text: string, { before, after }: Resize): string {
  const [from, to] = [sizeIn(before, volume), sizeIn(after, volume)];
  if (to === undefined) return `volume ${volume} is as requested (${text})`;
  if (from === undefined || from === to) return `volume ${volume} has ${formatMemory(to)}, as requested (${text})`;
  return `volume ${volume}: ${formatMemory(from)} -> ${formatMemory(to)}, as requested (${text})`;
}

/** Returns the text of an event about a resize that does not fit yet. */
const deferredNote = (volume: string, text: string, why: string): string =>
  `volume ${volume} is not resized yet (requested: ${text}): ${why}; the shim retries until it fits`;

/** Returns the text of an event about a resize that was rejected or has failed. */
const infeasibleNote = (volume: string, text: string, reason: string, why: string): string =>
  `volume ${volume} is not resized (requested: ${text}): ${reason}: ${why}`;

/** Returns the text of an event about a resize that was canceled. */
const canceledNote = (volume: string, text: string, why: string): string =>
  `volume ${volume} resize was canceled (requested: ${text}): ${why}`;

const sizeIn = (state: PodState | undefined, volume: string) =>
  state?.volumes.find(({ name }) => name === volume)?.size;
