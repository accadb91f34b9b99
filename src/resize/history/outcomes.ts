import { ShimError } from '../../core/errors/index.ts';
import { type Counters, type ResizeDirection, noCounters } from '../../observe/index.ts';
import type { VolumePolicy } from '../../tmpfs/index.ts';
import type { Bytes } from '../../core/quantities/index.ts';
import { type KnownValues, type ResizeState, explained, failureOf, fitsLater } from '../model/index.ts';

/** What requests since the start of the shim have come to for one pod. */
export interface PodOutcome {
  /** What was asked for last, admitted or not. */
  readonly desired: KnownValues<VolumePolicy>;
  /** What was admitted last. */
  readonly allocated: KnownValues<Bytes>;
  /** What was written last. */
  readonly actuated: KnownValues<Bytes>;
  /** Of the last request; undefined before the first one. */
  readonly state: ResizeState | undefined;
  /** Why the last request failed; undefined when it did not. */
  readonly lastError: RequestError | undefined;
  /** The same by volume, of the last request that failed for one; until a newer one asks for it, or it is resized. */
  readonly volumeErrors: ReadonlyMap<string, RequestError>;
  /** What makes no sense in the annotations that the pod was made with. */
  readonly annotationErrors: readonly string[];
}

/** Why a request failed. `at` in milliseconds since the epoch. */
export interface RequestError {
  readonly reason: string;
  readonly message: string;
  readonly at: number;
}

const nothing: PodOutcome = {
  desired: {},
  allocated: {},
  actuated: {},
  state: undefined,
  lastError: undefined,
  volumeErrors: new Map(),
  annotationErrors: [],
};

/**
 * How requests went, pod by pod, for whoever asks for a pod's status. In memory: the kernel says what is, the journal what
 * was under way. Of each pod one request at a time is carried out, so each has one outcome.
 */
export class PodOutcomes {
  readonly #pods = new Map<string, PodOutcome>();
  readonly #counters: Pick<Counters, 'resize'>;
  /** Of the requests under way, by sandbox id. */
  readonly #directions = new Map<string, ResizeDirection>();

  constructor(counters: Pick<Counters, 'resize'> = noCounters) {
    this.#counters = counters;
  }

  of(sandboxId: string): PodOutcome {
    return this.#pods.get(sandboxId) ?? nothing;
  }

  forget(sandboxId: string): void {
    this.#pods.delete(sandboxId);
    this.#directions.delete(sandboxId);
  }

  forgetContainer(containerId: string): void {
    for (const [sandboxId, { desired, allocated, actuated }] of this.#pods) {
      this.#set(sandboxId, {
        desired: withoutContainer(desired, containerId),
        allocated: withoutContainer(allocated, containerId),
        actuated: withoutContainer(actuated, containerId),
      });
    }
  }

  /** A pod has come. Of others nothing is kept: a request may end after its pod. */
  meet(sandboxId: string, annotationErrors: readonly string[]): void {
    this.#pods.set(sandboxId, { ...nothing, annotationErrors });
  }

  /** Runs one request of a pod, and keeps how it ended. Gives and throws what it does. */
  async track<Result>(sandboxId: string, request: () => Promise<Result>): Promise<Result> {
    this.#directions.delete(sandboxId);
    try {
      const result = await request();
      this.#set(sandboxId, { state: 'Completed', lastError: undefined });
      this.#counters.resize('Completed', this.#directions.get(sandboxId) ?? 'unknown');
      return result;
    } catch (error) {
      this.#failed(sandboxId, error);
      this.#counters.resize(endOf(error), this.#directions.get(sandboxId) ?? 'unknown');
      throw error;
    } finally {
      this.#directions.delete(sandboxId);
    }
  }

  /** Runs what is looked at before a request waits its turn. What it throws is how the last one ended, unless another is under way. */
  screen(sandboxId: string, check: () => void): void {
    try {
      check();
    } catch (error) {
      if (this.of(sandboxId).state !== 'InProgress') this.#failed(sandboxId, error);
      this.#counters.resize(endOf(error), 'unknown');
      throw error;
    }
  }

  #failed(sandboxId: string, error: unknown): void {
    const lastError = { ...explained(failureOf(error)), at: Date.now() };
    this.#set(sandboxId, { state: endOf(error), lastError });
    const volume = error instanceof ShimError ? error.context.volume : undefined;
    if (volume === undefined) return;
    this.#set(sandboxId, { volumeErrors: new Map([...this.of(sandboxId).volumeErrors, [volume, lastError]]) });
  }

  #withoutErrors(sandboxId: string, volumes: Iterable<string> = []): Pick<PodOutcome, 'volumeErrors'> {
    const volumeErrors = new Map(this.of(sandboxId).volumeErrors);
    for (const volume of volumes) volumeErrors.delete(volume);
    return { volumeErrors };
  }

  /** Where the request under way wants the pod to go, for {@link track}. */
  leads(sandboxId: string, direction: ResizeDirection): void {
    this.#directions.set(sandboxId, direction);
  }

  /** What a request asks for, as soon as it has been read. */
  desire(sandboxId: string, values: KnownValues<VolumePolicy>): void {
    this.#set(sandboxId, {
      desired: merged(this.of(sandboxId).desired, values),
      state: 'Proposed',
      ...this.#withoutErrors(sandboxId, values.volumes?.keys()),
    });
  }

  /** Sizes of volumes that hold without a request: those of an earlier shim, or of somebody else. */
  allocate(sandboxId: string, volumes: ReadonlyMap<string, Bytes>): void {
    if (volumes.size > 0) this.#set(sandboxId, { allocated: merged(this.of(sandboxId).allocated, { volumes }) });
  }

  /** Runs a transaction to these values. When it throws it was taken back: what was allocated before is so again. */
  async admit<Result>(
    sandboxId: string,
    values: KnownValues<Bytes>,
    transaction: () => Promise<Result>,
  ): Promise<Result> {
    const { allocated: before } = this.of(sandboxId);
    this.#set(sandboxId, { allocated: merged(before, values), state: 'InProgress' });
    try {
      const result = await transaction();
      this.#set(sandboxId, {
        actuated: merged(this.of(sandboxId).actuated, values),
        ...this.#withoutErrors(sandboxId, values.volumes?.keys()),
      });
      return result;
    } catch (error) {
      this.#set(sandboxId, { allocated: before });
      throw error;
    }
  }

  #set(sandboxId: string, changes: Partial<PodOutcome>): void {
    const before = this.#pods.get(sandboxId);
    if (before !== undefined) this.#pods.set(sandboxId, { ...before, ...changes });
  }
}

const endOf = (error: unknown): 'Deferred' | 'Infeasible' => (fitsLater(error) ? 'Deferred' : 'Infeasible');

function merged<Size>(before: KnownValues<Size>, after: KnownValues<Size>): KnownValues<Size> {
  const containers = new Map(before.containers);
  for (const [id, limits] of after.containers ?? []) containers.set(id, { ...containers.get(id), ...limits });
  return {
    pod: { ...before.pod, ...after.pod },
    containers,
    volumes: new Map([...(before.volumes ?? []), ...(after.volumes ?? [])]),
  };
}

function withoutContainer<Size>(values: KnownValues<Size>, id: string): KnownValues<Size> {
  if (values.containers?.has(id) !== true) return values;
  return { ...values, containers: new Map([...values.containers].filter(([other]) => other !== id)) };
}
