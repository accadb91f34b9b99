import { type Clock, Code, type Log, loggableError, Reason, ShimError } from '../../core/index.ts';
import { isStaticPod, type PodIdentity, type Resize, type Resizes, retryDelay } from '../../sandbox/index.ts';
import type { VolumePolicy } from '../../tmpfs/index.ts';
import type { PodAudience } from '../pods/audience.ts';
import { type ApiPod, type ApiPodIdentity, keyOf, volumeTexts, whyForeign } from '../pods/pod.ts';
import { firstChange, isForVolumesOnly, requestFor, textOf } from './change.ts';
import type { PodEvent } from './events.ts';
import { isPassing, Outcomes } from './outcomes.ts';

/** The pods that run on this node. */
export interface NodePods {
  /** Finds a pod. Undefined: not here yet, or no longer. Rejects if this currently cannot be determined. */
  find(uid: string): Promise<LocalPod | undefined>;
  /** The present owner of a volume's size. */
  policy(sandboxId: string, volume: string): VolumePolicy;
  /** Reports a requested or removed annotation of a volume. Meanwhile, remounts by others are not taken over. */
  annotated(sandboxId: string, volume: string, isThere: boolean): Promise<void>;
}

export interface LocalPod {
  readonly identity: PodIdentity;
  /** The pod's annotations at its creation. */
  readonly annotations: Readonly<Record<string, string>>;
}

export interface RequestsOptions {
  readonly resizes: Pick<Resizes, 'resize' | 'cancel' | 'find' | 'newestOf' | 'annotationsOf' | 'storeAnnotations'>;
  readonly pods: NodePods;
  readonly post: (event: PodEvent) => void;
  readonly clock: Clock;
  /** 0 to 1, as Math.random. */
  readonly random: () => number;
  readonly log: Log;
}

/** A pod of this node in Kubernetes, and the progress of its requests. */
interface Entry {
  pod: ApiPod;
  /** Whether its annotations are being compared, and whether to compare them again after that. */
  isBusy: boolean;
  again: boolean;
  /** Consecutive temporary failures. */
  failures: number;
  stopTimer: () => void;
}

/** Timeout of one try in milliseconds, the default of ResizePod. */
const TRY_MS = 30_000;

/**
 * Turns changed annotations into resize requests: one at a time per pod, pods concurrently. A new request includes the
 * volumes that are still waiting, because a newer resize of a pod supersedes older ones.
 */
export class AnnotationRequests implements PodAudience {
  readonly #outcomes: Outcomes;
  readonly #own: OwnResizes;
  readonly #entries = new Map<string, Entry>();
  #isClosed = false;

  constructor(private readonly options: RequestsOptions) {
    this.#outcomes = new Outcomes(options);
    this.#own = new OwnResizes(options.resizes, this.#outcomes);
  }

  replace(pods: readonly ApiPod[]): void {
    const present = new Set(pods.map(keyOf));
    for (const [key, { pod }] of [...this.#entries]) if (!present.has(key)) this.gone(pod);
    for (const pod of pods) this.present(pod);
  }

  present(pod: ApiPod): void {
    const entry = this.#entries.get(keyOf(pod));
    if (entry === undefined) {
      const stopTimer = (): void => undefined;
      this.#entries.set(keyOf(pod), { pod, isBusy: false, again: false, failures: 0, stopTimer });
    } else entry.pod = pod;
    this.look(pod);
  }

  gone(pod: ApiPodIdentity): void {
    this.#entries.get(keyOf(pod))?.stopTimer();
    this.#entries.delete(keyOf(pod));
    this.#outcomes.forget(pod);
  }

  /** Compares the annotations of a pod with its last requests. Also called when the pod is added to this node. */
  look(pod: ApiPodIdentity): void {
    const entry = this.#entries.get(keyOf(pod));
    if (entry === undefined || this.#isClosed) return;
    entry.again = true;
    if (!entry.isBusy) void this.#checkEntry(entry);
  }

  /** A resize of any pod has reached a state. */
  reached(resize: Resize): void {
    this.#own.reached(resize);
    // Late states of a deleted pod must not leave entries behind.
    if (!this.#entries.has(keyOf(resize.pod))) this.#outcomes.forget(resize.pod);
  }

  /** Makes no further requests. Running resizes continue. */
  close(): void {
    this.#isClosed = true;
    for (const { stopTimer } of this.#entries.values()) stopTimer();
  }

  /** Makes the pending requests of a pod. Never rejects. */
  async #checkEntry(entry: Entry): Promise<void> {
    entry.isBusy = true;
    entry.stopTimer();
    try {
      while (entry.again) {
        entry.again = false;
        while (await this.#carryOutNext(entry));
      }
      entry.failures = 0;
    } catch (error) {
      this.#later(entry, error);
    } finally {
      entry.isBusy = false;
    }
  }

  #later(entry: Entry, error: unknown): void {
    const { clock, random, log } = this.options;
    const { pod } = entry;
    if (!(error instanceof ShimError))
      log.error({ uid: pod.uid, ...loggableError(error) }, 'pod annotation could not be processed');
    entry.failures += 1;
    if (this.#isClosed || this.#entries.get(keyOf(pod)) !== entry) return;
    entry.stopTimer = clock.after(retryDelay(entry.failures, random()), () => this.look(pod));
  }

  /** Makes the next request. Returns whether there may be more. Rejects if it has to be retried later. */
  async #carryOutNext(entry: Entry): Promise<boolean> {
    const { resizes, pods } = this.options;
    const local = this.#isActionable(entry) ? await pods.find(entry.pod.uid) : undefined;
    if (local === undefined || !this.#isActionable(entry)) return false;
    const { identity, annotations } = local;
    // Another pod may claim this pod's uid, as a mirror pod does. PodClaims reports it.
    if (whyForeign(entry.pod, identity, isStaticPod(local)) !== undefined) return false;
    const change = firstChange(entry.pod.volumes, {
      atCreation: volumeTexts(annotations),
      requested: resizes.annotationsOf(identity.sandboxId),
      policy: (volume) => pods.policy(identity.sandboxId, volume),
    });
    if (change === undefined) return false;
    const { volume, text } = change;
    return text === undefined ? this.#withdraw(identity, volume) : this.#ask(identity, volume, text);
  }

  #isActionable(entry: Entry): boolean {
    return !this.#isClosed && !entry.pod.isEnding && this.#entries.get(keyOf(entry.pod)) === entry;
  }

  /** Makes a request that includes the waiting volumes. Returns false if the pod is gone. */
  async #ask(pod: PodIdentity, volume: string, text: string): Promise<boolean> {
    this.#outcomes.begin(pod, volume, text);
    const volumes = { ...this.#own.waitingTexts(pod), [volume]: text };
    return this.#own.during(pod, volumes, async () => {
      const failure = await this.#request(pod, volumes);
      if (failure !== undefined && isPassing(failure.reason)) {
        if (failure.reason !== Reason.STOPPING) this.#outcomes.deferred(pod, volume, text, failure);
        throw failure;
      }
      if (this.#hasGone(pod, failure)) return false;
      // A rejected request sets no size. Noted first: a shim that is killed in between repeats the request.
      if (failure === undefined) await this.options.pods.annotated(pod.sandboxId, volume, true);
      await this.options.resizes.storeAnnotations(pod, { [volume]: text });
      // Rejected before it became a resize, so no state of a resize reports it.
      if (failure !== undefined && failure.context.resize === undefined)
        this.#outcomes.infeasible(pod, volume, text, failure);
      return true;
    });
  }

  /** Handles a removed annotation: the volume keeps its size, and a waiting request is canceled. */
  async #withdraw(pod: PodIdentity, volume: string): Promise<boolean> {
    const { resizes, pods } = this.options;
    const waiting = this.#own.waitingFor(pod, volume);
    const texts = this.#own.waitingTexts(pod);
    const waited = textOf(texts, volume);
    const rest = Object.fromEntries(Object.entries(texts).filter(([name]) => name !== volume));
    await this.#own.during(pod, { ...rest, [volume]: '' }, async () => {
      if (waiting.length > 0 && Object.keys(rest).length > 0) {
        const failure = await this.#request(pod, rest);
        if (failure !== undefined && isPassing(failure.reason)) throw failure;
      }
      const stored = resizes.storeAnnotations(pod, { [volume]: '' });
      for (const id of waiting) await resizes.cancel(id);
      await stored;
      await pods.annotated(pod.sandboxId, volume, false);
    });
    this.#outcomes.withdrawn(pod, volume, waited);
    return true;
  }

  /** Makes a request. Returns the error of a rejected one; otherwise undefined. Rejects if the error is internal. */
  async #request(pod: PodIdentity, volumes: Readonly<Record<string, string>>): Promise<ShimError | undefined> {
    const { resizes, clock } = this.options;
    try {
      const requester = { kind: 'annotation' } as const;
      const terms = { defer: true, timeoutMs: TRY_MS, deadline: clock.now() + TRY_MS, requester };
      this.#own.reached(await resizes.resize(pod, requestFor(volumes), terms));
      return undefined;
    } catch (error) {
      if (error instanceof ShimError) return error;
      throw error;
    }
  }

  /** Whether the pod is gone, so that nothing is stored for it. */
  #hasGone({ sandboxId }: PodIdentity, failure: ShimError | undefined): boolean {
    return failure?.code === Code.NOT_FOUND || this.options.resizes.newestOf(sandboxId)?.reason === POD_GONE;
  }
}

type Texts = Readonly<Record<string, string>>;

/** An event without the outcome of a try: the resize was taken over from an earlier shim. */
const RESTARTED = 'RESTARTED';
const POD_GONE = 'POD_GONE';
const SUPERSEDED = 'SUPERSEDED';

/**
 * The resizes that annotations requested: those that only change volumes, with the texts of the last requests. This
 * identifies them after a restart too, and excludes a resize whose annotation has changed since.
 */
class OwnResizes {
  /** The texts that are being requested, by pod uid. */
  readonly #asking = new Map<string, Texts>();
  /** Resizes that are deferred or being retried, by id. */
  readonly #waiting = new Map<string, Resize>();

  constructor(
    private readonly resizes: Pick<Resizes, 'find' | 'newestOf' | 'annotationsOf'>,
    private readonly outcomes: Outcomes,
  ) {}

  /** Runs a request for these volumes. Its outcomes are reported from its start. */
  async during<Result>(pod: PodIdentity, volumes: Texts, request: () => Promise<Result>): Promise<Result> {
    this.#asking.set(pod.uid, volumes);
    try {
      return await request();
    } finally {
      this.#asking.delete(pod.uid);
    }
  }

  /** Handles a resize of any pod that has reached a state. Call it for each, also those in progress at start. */
  reached(resize: Resize): void {
    const { id, state, reason } = resize;
    const ours = this.#ours(resize);
    if (state === 'Deferred' && ours.length > 0) this.#waiting.set(id, resize);
    if (state === 'Completed' || state === 'Infeasible' || state === 'Canceled') this.#waiting.delete(id);
    if (ours.length === 0 || reason === RESTARTED || isPassing(reason)) return;
    if (reason === POD_GONE) return;
    const elsewhere = this.#elsewhere(resize);
    this.outcomes.report(
      resize,
      ours.filter(([volume]) => textOf(elsewhere, volume) === undefined),
    );
  }

  /** Returns the volumes whose requests continue in another resize. */
  #elsewhere({ pod, state, reason, defer }: Resize): Texts {
    // A rejected request has changed nothing: the earlier one still waits.
    if (state === 'Infeasible' || (state === 'Canceled' && !defer)) return this.waitingTexts(pod);
    const newest = reason === SUPERSEDED ? this.resizes.newestOf(pod.sandboxId) : undefined;
    return newest === undefined ? {} : Object.fromEntries(this.#ours(newest));
  }

  /** Returns the texts of a pod's waiting request. */
  waitingTexts(pod: PodIdentity): Texts {
    return Object.fromEntries(this.#waitingOf(pod).flatMap((resize) => this.#ours(resize)));
  }

  /** Returns the ids of the resizes that wait for this volume, if all their volumes were requested by annotations. */
  waitingFor(pod: PodIdentity, volume: string): readonly string[] {
    return this.#waitingOf(pod)
      .filter(({ asked }) => textOf(asked.volumes, volume) !== undefined)
      .filter((resize) => this.#ours(resize).length === Object.keys(resize.asked.volumes).length)
      .map(({ id }) => id);
  }

  /** Returns a pod's waiting resizes in their current state: the pod may have another sandbox by now. */
  #waitingOf({ uid }: PodIdentity): readonly Resize[] {
    return [...this.#waiting.values()]
      .map((resize) => this.resizes.find(resize.id) ?? resize)
      .filter(({ pod }) => pod.uid === uid);
  }

  #ours({ pod, asked }: Resize): readonly (readonly [string, string])[] {
    if (!isForVolumesOnly(asked)) return [];
    const texts: Texts = { ...this.resizes.annotationsOf(pod.sandboxId), ...this.#asking.get(pod.uid) };
    return Object.entries(asked.volumes).filter(([volume, text]) => textOf(texts, volume) === text);
  }
}
