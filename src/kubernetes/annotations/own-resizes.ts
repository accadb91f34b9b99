import { isForVolumesOnly, textOf } from './change.ts';
import { type Outcomes, isPassing } from './outcomes.ts';
import type { PodIdentity } from '../../sandbox/index.ts';
import type { Resize, Resizes } from '../../resize/index.ts';

type Texts = Readonly<Record<string, string>>;

/** What is no outcome of a try: the resize was taken over from an earlier shim. */
const RESTARTED = 'RESTARTED';
export const POD_GONE = 'POD_GONE';
const SUPERSEDED = 'SUPERSEDED';

/**
 * The resizes that annotations have asked for, among all: those for volumes alone, with the texts that were last asked for.
 * So they are known after a restart too, and one whose annotation has changed since is no longer one of them.
 */
export class OwnResizes {
  readonly #resizes: Pick<Resizes, 'find' | 'newestOf' | 'annotationsOf'>;
  readonly #outcomes: Outcomes;
  /** By pod uid, what is being asked right now. */
  readonly #asking = new Map<string, Texts>();
  /** Resizes that are deferred or being retried, by id. */
  readonly #waiting = new Map<string, Resize>();

  constructor(resizes: Pick<Resizes, 'find' | 'newestOf' | 'annotationsOf'>, outcomes: Outcomes) {
    this.#resizes = resizes;
    this.#outcomes = outcomes;
  }

  /** Runs a request for these volumes. Its outcomes are reported from its start. */
  async during<Result>(pod: PodIdentity, volumes: Texts, request: () => Promise<Result>): Promise<Result> {
    this.#asking.set(pod.uid, volumes);
    try {
      return await request();
    } finally {
      this.#asking.delete(pod.uid);
    }
  }

  /** Handles a resize of any pod that has reached a state. Call it for each, also for resizes in progress at the start. */
  reached(resize: Resize): void {
    const { id, state, reason } = resize;
    const ours = this.#ours(resize);
    if (state === 'Deferred' && ours.length > 0) this.#waiting.set(id, resize);
    if (state === 'Completed' || state === 'Infeasible' || state === 'Canceled') this.#waiting.delete(id);
    if (ours.length === 0 || reason === RESTARTED || isPassing(reason)) return;
    if (reason === POD_GONE) return;
    const elsewhere = this.#elsewhere(resize);
    this.#outcomes.report(
      resize,
      ours.filter(([volume]) => textOf(elsewhere, volume) === undefined),
    );
  }

  /** The volumes of which this resize is not the last word. */
  #elsewhere({ pod, state, reason, defer }: Resize): Texts {
    // What is refused has changed nothing: what waited still does.
    if (state === 'Infeasible' || (state === 'Canceled' && !defer)) return this.waitingTexts(pod);
    const newest = reason === SUPERSEDED ? this.#resizes.newestOf(pod.sandboxId) : undefined;
    return newest === undefined ? {} : Object.fromEntries(this.#ours(newest));
  }

  /** What is asked for a pod's volumes and waits. */
  waitingTexts(pod: PodIdentity): Texts {
    return Object.fromEntries(this.#waitingOf(pod).flatMap((resize) => this.#ours(resize)));
  }

  /** The ids of those that wait for this volume, and for no volume that is not ours. */
  waitingFor(pod: PodIdentity, volume: string): readonly string[] {
    return this.#waitingOf(pod)
      .filter(({ asked }) => textOf(asked.volumes, volume) !== undefined)
      .filter((resize) => this.#ours(resize).length === Object.keys(resize.asked.volumes).length)
      .map(({ id }) => id);
  }

  /** Those of a pod that wait, as they are now: the pod may have got another sandbox since. */
  #waitingOf({ uid }: PodIdentity): readonly Resize[] {
    return [...this.#waiting.values()]
      .map((resize) => this.#resizes.find(resize.id) ?? resize)
      .filter(({ pod }) => pod.uid === uid);
  }

  #ours({ pod, asked }: Resize): readonly (readonly [string, string])[] {
    if (!isForVolumesOnly(asked)) return [];
    const texts: Texts = { ...this.#resizes.annotationsOf(pod.sandboxId), ...this.#asking.get(pod.uid) };
    return Object.entries(asked.volumes).filter(([volume, text]) => textOf(texts, volume) === text);
  }
}
