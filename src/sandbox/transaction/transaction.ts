import { type Bytes, Code, messageOf, Reason, ShimError, steadyNow } from '../../core/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { fitsIn, type MemoryVolumes } from '../../tmpfs/index.ts';
import type { PlannedTransaction } from '../history/transaction-events.ts';
import type { RequestedVolume } from '../journal/record.ts';
import type { Node } from '../node.ts';
import { compareLimits } from '../plan/amounts.ts';
import { lateError, StepSkipped } from '../plan/failures.ts';
import type { AdmittedRecord } from '../plan/resize-request.ts';
import { type ContainerStep, describeStep, type PodTarget, type Step, type StepRecord } from '../plan/step.ts';
import { plan } from '../plan/steps.ts';
import type { KnownValues } from '../plan/value-changes.ts';
import type { ContainerLimits, PodState } from '../pods/pod-state.ts';
import { type CallersUpdate, PodActions } from './actions.ts';
import { type OnHigh, reclaimBy } from './lower-memory.ts';
import { isLeft, TransactionJournal } from './transaction-journal.ts';

export interface TransactionOptions {
  /** The values that the caller's own call sets, for the journal. */
  readonly asked?: CallersUpdate | undefined;
  /** The requested volume sizes. They apply from now on, even after a volume is mounted again. */
  readonly sizes?: ReadonlyMap<string, RequestedVolume>;
  /** The requests that the transaction sets, if they change. */
  readonly admitted?: AdmittedRecord | undefined;
  /** Updates of containers that do not run: the runtime stores the values, no cgroup changes. */
  readonly stored?: readonly ContainerStep[];
  /** Deadline for reclaiming memory, in milliseconds of the steady clock. */
  readonly until?: number;
  /** The deadline of the transaction, by {@link steadyNow}. */
  readonly deadline?: number;
}

/** Returns the steps of a transaction. Throws VOLUME_IN_USE when a volume stores more than its new size. */
export function planSteps(
  volumes: MemoryVolumes,
  pod: PodDescription,
  state: PodState,
  target: PodTarget,
  stored: readonly ContainerStep[] = [],
): Step[] {
  const steps = plan(state, target, stored);
  assertVolumesFit(volumes, pod, steps);
  return steps;
}

/** A resize of one pod that is planned and journalled. */
export class Transaction {
  readonly #actions: PodActions;
  readonly #sequence: StepSequence;

  private constructor(
    private readonly node: Node,
    private readonly planned: PlannedTransaction,
    steps: readonly Step[],
    private readonly journal: TransactionJournal,
    { asked, sizes, deadline = Infinity, until = reclaimBy(node.reclaimTimeout, deadline) }: TransactionOptions,
  ) {
    const { pod } = planned;
    const updates = planned.steps.filter((step) => step.kind === 'container');
    const { declared } = planned.before;
    const { onHigh } = journal;
    this.#actions = new PodActions(node, pod, { asked, updates, declared, onHigh, requested: sizes, until, deadline });
    this.#sequence = new StepSequence(steps, this.#actions, {
      // The rollback has no deadline.
      late: (step) => (steadyNow() < deadline ? undefined : lateError(pod, describeStep(step))),
      applied: (record) => node.transactions.stepped(planned, record),
      skipped: (step, error) => this.#skipped(step, error),
    });
  }

  /**
   * Plans a pod's resize and journals its steps. The caller holds the pod's lock, and {@link run}s the transaction in
   * any case. Throws VOLUME_IN_USE when a volume would become smaller than what it stores (KEP-6030), and
   * JOURNAL_UNAVAILABLE. Nothing has changed then.
   */
  static async begin(
    node: Node,
    pod: PodDescription,
    state: PodState,
    target: PodTarget,
    options: TransactionOptions = {},
  ): Promise<Transaction> {
    const { asked, stored = [], sizes = new Map(), admitted } = options;
    const changes = asked?.changes;
    const steps = planOrReject(node, pod, state, target, stored);
    const all = withAsked(steps, changes);
    const values = valuesOf(target, asked?.sets);
    const planned = { pod, before: state, target, values, steps: all, asked: changes };
    node.transactions.begins(planned);
    const sets = [...(target.containers ?? []), ...(asked ? [asked.sets] : [])];
    try {
      const journalled = {
        steps: isJournalled(steps, changes) ? all : [],
        changes,
        sizes,
        state,
        target,
        sets,
        admitted,
      };
      const journal = await TransactionJournal.begin(node, pod, journalled);
      return new Transaction(node, planned, steps, journal, options);
    } catch (error) {
      node.transactions.ends(planned, [], error);
      throw error;
    }
  }

  /** The ids of containers for which a plugin of the runtime has chosen other values than requested. */
  get chosen(): ReadonlySet<string> {
    return this.#actions.chosen;
  }

  /**
   * Runs `work`, which applies the steps, and ends the transaction. If `work` fails, rolls back the applied steps.
   * Throws the error of `work`, or UNDO_FAILED if the rollback fails too.
   */
  async run<Result>(work: (steps: StepSequence) => Promise<Result>): Promise<Result> {
    const { transactions } = this.node;
    try {
      const result = await this.#workOrRollBack(work);
      await this.journal.done();
      transactions.ends(this.planned, this.#sequence.records);
      return result;
    } catch (error) {
      await this.journal.failed(error);
      transactions.ends(this.planned, this.#sequence.records, error);
      throw error;
    }
  }

  /** Applies all steps of a transaction without a call of the caller. Returns the applied ones. */
  async apply(): Promise<readonly StepRecord[]> {
    await this.run((steps) => steps.apply());
    return this.#sequence.records;
  }

  async #workOrRollBack<Result>(work: (steps: StepSequence) => Promise<Result>): Promise<Result> {
    const { transactions, journal } = this.node;
    try {
      const result = await work(this.#sequence);
      transactions.applied(this.planned);
      return result;
    } catch (cause) {
      await this.journal.undoing();
      const error = await this.#sequence.rollBack(cause);
      transactions.rolledBack(this.planned, error, isLeft(journal, this.planned.pod, error));
      throw error;
    }
  }

  #skipped(step: Step, error: unknown): void {
    this.journal.skipped(error);
    this.node.transactions.skipped(this.planned, step, error);
  }
}

/** Applies and rolls back the steps of a plan. */
export interface StepActions {
  /** Applies and verifies a step. Rejects on failure, or with {@link StepSkipped} if it skips the step on purpose. */
  apply(step: Step): Promise<void>;
  /** Makes the caller's own call, which is this step of the plan. */
  call<Answer>(step: Step, call: (onHigh: OnHigh | undefined) => Promise<Answer>): Promise<Answer>;
  /** Rolls back a step that was applied, fully or partly, as far as the pod's present state allows. */
  rollBack(step: Step): Promise<void>;
}

/** Hooks that are called while steps are applied. */
export interface StepHooks {
  /** Returns an error if a step must not begin any more. */
  readonly late?: (step: Step) => Error | undefined;
  readonly applied?: (record: StepRecord) => void;
  /** Called when a step was skipped, or failed after the caller's own call. The caller's change stays applied. */
  readonly skipped?: (step: Step, error: unknown) => void;
}

/**
 * The steps of a plan, applied in its order: those before the caller's own call, the call, and the rest. A plan without
 * such a call is all or nothing.
 */
export class StepSequence {
  readonly #left: Step[];
  readonly #records: StepRecord[] = [];
  /** The failed step, which may be partly applied. */
  #failed: Step | undefined;
  readonly #start = performance.now();

  constructor(
    steps: readonly Step[],
    private readonly actions: StepActions,
    private readonly hooks: StepHooks = {},
  ) {
    this.#left = [...steps];
  }

  /** The applied steps. */
  get records(): readonly StepRecord[] {
    return this.#records;
  }

  /** Applies the steps before the caller's own call. The first failure ends it (KEP-1287: skips later containers). */
  async apply(): Promise<void> {
    for (let step = this.#left[0]; step !== undefined && step.kind !== 'runtime'; step = this.#left[0]) {
      try {
        await this.#run(step, (one) => this.actions.apply(one));
      } catch (error) {
        if (!(error instanceof StepSkipped)) throw error;
        this.#failed = undefined;
        this.hooks.skipped?.(step, error);
      }
    }
  }

  /** Makes the caller's own call, which is next in the plan. Returns its answer. */
  async call<Answer>(call: (onHigh: OnHigh | undefined) => Promise<Answer>): Promise<Answer> {
    const [step] = this.#left;
    if (step?.kind !== 'runtime') throw new Error('the plan has no call of the caller here');
    return this.#run(step, (one) => this.actions.call(one, call));
  }

  /**
   * Applies the steps after the caller's own call: a decrease that keeps a pod limit tight, or growing volumes. Skips
   * failed steps, because the caller's change is applied.
   * @param refuse returns an error if a step must not be applied any more
   */
  async applyRest(refuse: (step: Step) => Error | undefined = () => undefined): Promise<void> {
    for (let step = this.#left[0]; step !== undefined; step = this.#left[0]) {
      try {
        const refusal = refuse(step);
        await this.#run(step, (one) => (refusal === undefined ? this.actions.apply(one) : Promise.reject(refusal)));
      } catch (error) {
        this.#failed = undefined;
        this.hooks.skipped?.(step, error);
      }
    }
  }

  /**
   * Rolls the failing step and those before it back in reverse order. Returns the error to throw: `cause` unchanged, or
   * UNDO_FAILED with both errors when the rollback fails too.
   */
  async rollBack(cause: unknown): Promise<unknown> {
    const failures: string[] = [];
    const steps = [...this.#records.map(({ step }) => step), ...(this.#failed === undefined ? [] : [this.#failed])];
    for (const step of steps.reverse()) {
      try {
        await this.actions.rollBack(step);
      } catch (error) {
        // Continue: each rolled back step brings the pod closer to its previous state.
        failures.push(`${describeStep(step)}: ${messageOf(error)}`);
      }
    }
    if (failures.length === 0) return cause;
    const message = `${messageOf(cause)}; rollback failed too: ${failures.join('; ')}`;
    return new ShimError(Code.INTERNAL, Reason.UNDO_FAILED, message, {}, { cause });
  }

  async #run<Result>(step: Step, action: (step: Step) => Promise<Result>): Promise<Result> {
    this.#left.shift();
    const late = this.hooks.late?.(step);
    // The step has not begun, so there is nothing to roll back.
    if (late !== undefined) throw late;
    const at = performance.now() - this.#start;
    this.#failed = step;
    const result = await action(step);
    this.#failed = undefined;
    const record = { step, at, ms: performance.now() - this.#start - at };
    this.#records.push(record);
    this.hooks.applied?.(record);
    return result;
  }
}

function planOrReject(
  { volumes, transactions }: Node,
  pod: PodDescription,
  state: PodState,
  target: PodTarget,
  stored: readonly ContainerStep[],
): Step[] {
  try {
    return planSteps(volumes, pod, state, target, stored);
  } catch (error) {
    transactions.rejected(error);
    throw error;
  }
}

/** Whether the steps are journalled: the runtime's call alone is not, unless the shim lowers memory.high for it. */
const isJournalled = (steps: readonly Step[], asked: ContainerStep | undefined): boolean =>
  steps.some(({ kind }) => kind !== 'runtime') ||
  (asked?.memory !== undefined && compareLimits(asked.memory.to, asked.memory.from) < 0);

/** Returns the steps with the caller's call replaced by its changes: recovery can only roll these back. */
const withAsked = (steps: readonly Step[], asked: ContainerStep | undefined): Step[] =>
  steps.flatMap((step): Step[] => {
    if (step.kind !== 'runtime') return [step];
    return asked === undefined ? [] : [asked];
  });

/** Returns the values that a transaction sets. */
function valuesOf(
  { memory, cpu, weight, containers = [], volumes }: PodTarget,
  container: ContainerLimits | undefined,
): KnownValues<Bytes> {
  const limitsOf = ({ id, memory: most, cpu: quota }: ContainerLimits): ContainerLimits => ({
    id,
    ...(most !== undefined && { memory: most }),
    ...(quota && { cpu: quota }),
  });
  const all = container === undefined ? containers : [...containers, limitsOf(container)];
  return {
    pod: { ...(memory !== undefined && { memory }), ...(cpu && { cpu }), ...(weight !== undefined && { weight }) },
    containers: new Map(all.map(({ id, ...limits }) => [id, limits])),
    volumes,
  };
}

/** Throws DEADLINE when the deadline, by {@link steadyNow}, has passed before something has begun. */
export function assertInTime(pod: PodDescription, deadline: number, what: string): void {
  if (steadyNow() >= deadline) throw lateError(pod, what);
}

/** KEP-6030: a volume does not shrink below what it stores. Throws VOLUME_IN_USE. */
function assertVolumesFit(volumes: MemoryVolumes, pod: PodDescription, steps: readonly Step[]): void {
  const shrinking = steps.filter((step) => step.kind === 'volume').filter((step) => step.to < step.from);
  for (const { volume, from, to } of shrinking) {
    const measured = volumes.measure({ podUid: pod.metadata.uid, name: volume });
    if (fitsIn(to, measured)) continue;
    const { used } = measured;
    throw new ShimError(
      Code.FAILED_PRECONDITION,
      Reason.VOLUME_IN_USE,
      `volume ${volume} of pod ${pod.metadata.uid} cannot shrink from ${from} to ${to} bytes: ${used} are stored in it`,
      { pod: pod.metadata.uid, volume, asked: String(to), found: String(used) },
    );
  }
}
