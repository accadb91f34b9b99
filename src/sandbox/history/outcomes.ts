import {
  type Bytes,
  type Counters,
  noCounters,
  Reason,
  type ResizeDirection,
  ShimError,
  wallTime,
} from '../../core/index.ts';
import type { VolumePolicy } from '../../tmpfs/index.ts';
import { explained, failureOf, fitsLater } from '../plan/failures.ts';
import type { ResizeState } from '../plan/resize-request.ts';
import type { StepRecord } from '../plan/step.ts';
import { absolute, directionOf, type KnownValues, knownOf } from '../plan/value-changes.ts';
import type { RequestReport } from './request-recorder.ts';
import type { PlannedTransaction, TransactionListener } from './transaction-events.ts';

/** The result of all requests for one pod since the start of the shim. */
export interface PodOutcome {
  /** The values requested last, admitted or not. */
  readonly desired: KnownValues<VolumePolicy>;
  /** The values admitted last. */
  readonly allocated: KnownValues<Bytes>;
  /** The values written last. */
  readonly actuated: KnownValues<Bytes>;
  /** The state of the last request; undefined before the first one. */
  readonly state: ResizeState | undefined;
  /** Why the last request failed; undefined when it succeeded. */
  readonly lastError: RequestError | undefined;
  /**
   * By volume, why the last request failed; removed when a newer request names the volume, or the volume is resized. If
   * the failed request did not name the volume, which follows a limit, the next success of the pod removes it.
   */
  readonly volumeErrors: ReadonlyMap<string, RequestError>;
  /** The invalid annotations among those that the pod was created with. */
  readonly annotationErrors: readonly string[];
}

/** Why a request failed. `at` is in milliseconds since the epoch. */
export interface RequestError {
  readonly reason: string;
  readonly message: string;
  readonly at: number;
  /** Whether the failed request did not name the volume. */
  readonly isDerived?: boolean;
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
 * The outcomes of requests per pod, which the pod's status reports. They are in memory only: actual values come from
 * the kernel, and open transactions from the journal. A pod has one outcome, because its requests run one at a time.
 */
export class PodOutcomes implements TransactionListener {
  readonly #pods = new Map<string, PodOutcome>();
  /** The directions of the requests in progress, by sandbox id. */
  readonly #directions = new Map<string, ResizeDirection>();
  /** The volumes that the requests in progress name, by sandbox id. */
  readonly #named = new Map<string, ReadonlySet<string>>();
  readonly #allocatedBefore = new WeakMap<PlannedTransaction, KnownValues<Bytes>>();
  /** The recorders of the requests in progress, by sandbox id. */
  readonly #reports = new Map<string, Partial<RequestReport>>();

  constructor(private readonly counters: Pick<Counters, 'resize'> = noCounters) {}

  of(sandboxId: string): PodOutcome {
    return this.#pods.get(sandboxId) ?? nothing;
  }

  forget(sandboxId: string): void {
    this.#pods.delete(sandboxId);
    this.#directions.delete(sandboxId);
    this.#named.delete(sandboxId);
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

  /** Adds a pod. Outcomes of unknown pods are dropped, because a request may end after its pod. */
  addPod(sandboxId: string, annotationErrors: readonly string[]): void {
    this.#pods.set(sandboxId, { ...nothing, annotationErrors });
  }

  /**
   * Runs one request of a pod and records its outcome. Returns and throws the result of the request. A request that was
   * superseded while it waited has no outcome: the pod reports the outcome of the newer request.
   * @param report receives the changes of the request and its end
   */
  async track<Result>(
    sandboxId: string,
    request: () => Promise<Result>,
    report: Partial<RequestReport> = {},
  ): Promise<Result> {
    this.#directions.delete(sandboxId);
    this.#reports.set(sandboxId, report);
    try {
      const result = await request();
      this.#set(sandboxId, { state: 'Completed', lastError: undefined, ...this.#withoutDerivedErrors(sandboxId) });
      this.counters.resize('Completed', this.#directions.get(sandboxId) ?? 'unknown');
      report.completed?.();
      return result;
    } catch (error) {
      if (!isSuperseded(error)) {
        this.#failed(sandboxId, error);
        this.counters.resize(endOf(error), this.#directions.get(sandboxId) ?? 'unknown');
      }
      report.failed?.(error);
      throw error;
    } finally {
      this.#directions.delete(sandboxId);
      this.#named.delete(sandboxId);
      this.#reports.delete(sandboxId);
    }
  }

  /**
   * Runs a check that precedes the wait for the pod's lock. An error becomes the outcome of the last request, unless
   * another request is in progress.
   */
  check(sandboxId: string, check: () => void, report: Partial<RequestReport> = {}): void {
    try {
      check();
    } catch (error) {
      if (this.of(sandboxId).state !== 'InProgress') this.#failed(sandboxId, error);
      this.counters.resize(endOf(error), 'unknown');
      report.failed?.(error);
      throw error;
    }
  }

  #failed(sandboxId: string, error: unknown): void {
    const lastError = { ...explained(failureOf(error)), at: wallTime() };
    this.#set(sandboxId, { state: endOf(error), lastError });
    const volume = error instanceof ShimError ? error.context.volume : undefined;
    if (volume === undefined) return;
    const isDerived = this.#named.get(sandboxId)?.has(volume) !== true;
    const volumeErrors = new Map([...this.of(sandboxId).volumeErrors, [volume, { ...lastError, isDerived }]]);
    this.#set(sandboxId, { volumeErrors });
  }

  #withoutDerivedErrors(sandboxId: string): Pick<PodOutcome, 'volumeErrors'> {
    const errors = [...this.of(sandboxId).volumeErrors];
    return { volumeErrors: new Map(errors.filter(([, { isDerived }]) => isDerived !== true)) };
  }

  #withoutErrors(sandboxId: string, volumes: Iterable<string> = []): Pick<PodOutcome, 'volumeErrors'> {
    const volumeErrors = new Map(this.of(sandboxId).volumeErrors);
    for (const volume of volumes) volumeErrors.delete(volume);
    return { volumeErrors };
  }

  /** Records the requested and the present values of the request in progress. {@link track} counts their direction. */
  asks(sandboxId: string, desired: KnownValues<VolumePolicy>, now: KnownValues<Bytes>): void {
    const { volumes = new Map<string, VolumePolicy>() } = desired;
    this.#directions.set(sandboxId, directionOf({ ...desired, volumes: absolute(volumes) }, now));
    this.#reports.get(sandboxId)?.asks?.(desired, now);
  }

  begins(transaction: PlannedTransaction): void {
    const { pod, before, values, steps } = transaction;
    const { sandboxId } = pod;
    this.#directions.set(sandboxId, directionOf(values, knownOf(before)));
    this.#reports.get(sandboxId)?.begins?.(steps);
    this.#allocatedBefore.set(transaction, this.#admitted(sandboxId, values));
  }

  stepped({ pod }: PlannedTransaction, record: StepRecord): void {
    this.#reports.get(pod.sandboxId)?.stepped?.(record);
  }

  rolledBack({ pod }: PlannedTransaction, _error: unknown, isLeft: boolean): void {
    if (isLeft) this.#reports.get(pod.sandboxId)?.leftUnfinished?.();
  }

  ends(transaction: PlannedTransaction, _records: readonly StepRecord[], error?: unknown): void {
    const { pod, values } = transaction;
    if (error === undefined) this.#actuated(pod.sandboxId, values);
    else this.#set(pod.sandboxId, { allocated: this.#allocatedBefore.get(transaction) ?? {} });
  }

  /** Records the requested values, once the request is validated. */
  setDesired(sandboxId: string, values: KnownValues<VolumePolicy>): void {
    this.#named.set(sandboxId, new Set(values.volumes?.keys()));
    this.#set(sandboxId, {
      desired: merged(this.of(sandboxId).desired, values),
      state: 'Proposed',
      ...this.#withoutErrors(sandboxId, values.volumes?.keys()),
    });
  }

  /** Records volume sizes not set by requests of this process: from the journal, or remounts by other programs. */
  setAllocated(sandboxId: string, volumes: ReadonlyMap<string, Bytes>): void {
    if (volumes.size > 0) this.#set(sandboxId, { allocated: merged(this.of(sandboxId).allocated, { volumes }) });
  }

  /** Runs an update to these values outside a transaction. On error, restores the previous allocated values. */
  async admit<Result>(sandboxId: string, values: KnownValues<Bytes>, update: () => Promise<Result>): Promise<Result> {
    const allocated = this.#admitted(sandboxId, values);
    try {
      const result = await update();
      this.#actuated(sandboxId, values);
      return result;
    } catch (error) {
      this.#set(sandboxId, { allocated });
      throw error;
    }
  }

  /** Records admitted values. Returns the allocated values from before. */
  #admitted(sandboxId: string, values: KnownValues<Bytes>): KnownValues<Bytes> {
    const { allocated } = this.of(sandboxId);
    this.#set(sandboxId, { allocated: merged(allocated, values), state: 'InProgress' });
    return allocated;
  }

  #actuated(sandboxId: string, values: KnownValues<Bytes>): void {
    const actuated = merged(this.of(sandboxId).actuated, values);
    this.#set(sandboxId, { actuated, ...this.#withoutErrors(sandboxId, values.volumes?.keys()) });
  }

  #set(sandboxId: string, changes: Partial<PodOutcome>): void {
    const before = this.#pods.get(sandboxId);
    if (before !== undefined) this.#pods.set(sandboxId, { ...before, ...changes });
  }
}

const isSuperseded = (error: unknown): boolean => error instanceof ShimError && error.reason === Reason.SUPERSEDED;

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
