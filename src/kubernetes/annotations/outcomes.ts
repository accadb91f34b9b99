import { Reason } from '../../core/errors/index.ts';
import type { EventReason, PodEvent } from './events.ts';
import { canceledNote, deferredNote, exceedsNote, infeasibleNote, resizedNote } from './notes.ts';
import type { Clock } from '../../core/concurrency/index.ts';
import type { PodIdentity } from '../../sandbox/index.ts';
import type { Resize } from '../../resize/index.ts';

/** What says nothing about the request itself: it is made again. */
const PASSING: ReadonlySet<string> = new Set([
  Reason.BACKEND_UNAVAILABLE,
  Reason.DEADLINE,
  Reason.JOURNAL_UNAVAILABLE,
  Reason.TOO_MANY_RESIZES,
  Reason.AMBIGUOUS_POD,
  Reason.STOPPING,
]);
export const isPassing = (reason: string | undefined): boolean => reason !== undefined && PASSING.has(reason);

export interface OutcomesParts {
  readonly post: (event: PodEvent) => void;
  readonly clock: Clock;
}

/**
 * Tells the pod's events of how its annotations' requests go: each thing once for each request, however often it is tried
 * again.
 */
export class Outcomes {
  readonly #parts: OutcomesParts;
  /** By pod uid and volume, what has been told of the last request, and what that asked for. */
  readonly #told = new Map<string, Map<string, { readonly text: string; readonly told: Set<string> }>>();

  constructor(parts: OutcomesParts) {
    this.#parts = parts;
  }

  /** A request for this volume: of a new one all is told, also what was told of an earlier one. */
  begin(uid: string, volume: string, text: string): void {
    if (this.#told.get(uid)?.get(volume)?.text === text) return;
    const ofPod = this.#told.get(uid) ?? new Map<string, { readonly text: string; readonly told: Set<string> }>();
    this.#told.set(uid, ofPod.set(volume, { text, told: new Set() }));
  }

  /** The volume's annotation has gone: should it come back, that is a new request. `waited`: it was asked for, and not done. */
  withdrawn(pod: PodIdentity, volume: string, waited: string | undefined): void {
    if (waited !== undefined) this.#canceled(pod, volume, waited, 'its annotation was removed');
    this.#told.get(pod.uid)?.delete(volume);
  }

  forget(uid: string): void {
    this.#told.delete(uid);
  }

  /** A resize has come to a state. `volumes` are those of which it has to be told, with what was asked for them. */
  tell(resize: Resize, volumes: readonly (readonly [string, string])[]): void {
    const { pod, state, reason = '', message = '' } = resize;
    for (const [volume, text] of volumes) {
      switch (state) {
        case 'Completed':
          this.#once(pod, volume, text, 'VolumeResized', '', resizedNote(volume, text, resize));
          this.#tellExcess(resize, volume, text);
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

  deferred(pod: PodIdentity, volume: string, text: string, why: Why): void {
    this.#once(pod, volume, text, 'VolumeResizeDeferred', why.reason, deferredNote(volume, text, why.message));
  }

  infeasible(pod: PodIdentity, volume: string, text: string, why: Why): void {
    const note = infeasibleNote(volume, text, why.reason, why.message);
    this.#once(pod, volume, text, 'VolumeResizeInfeasible', why.reason, note);
  }

  #canceled(pod: PodIdentity, volume: string, text: string, why: string): void {
    this.#once(pod, volume, text, 'VolumeResizeCanceled', '', canceledNote(volume, text, why));
  }

  #tellExcess(resize: Resize, volume: string, text: string): void {
    const note = exceedsNote(volume, resize);
    if (note !== undefined) this.#once(resize.pod, volume, text, 'VolumeSizeExceedsMemoryLimit', '', note);
  }

  #once(pod: PodIdentity, volume: string, text: string, reason: EventReason, why: string, note: string): void {
    // Of one that an earlier shim has begun, too.
    this.begin(pod.uid, volume, text);
    const told = this.#told.get(pod.uid)?.get(volume)?.told;
    const key = `${reason} ${why}`;
    if (told === undefined || told.has(key)) return;
    told.add(key);
    this.#parts.post({ pod, reason, note, at: this.#parts.clock.now() });
  }
}

interface Why {
  readonly reason: string;
  readonly message: string;
}
