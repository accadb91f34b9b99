import { type CgroupPath, isCgroupVanished, type PreviousHigh } from '../../cgroups/index.ts';
import { type Bytes, isRollbackFailure, type Limit, type Log, messageOf } from '../../core/index.ts';
import { isUnanswered, type PodDescription } from '../../runtime/index.ts';
import { type OpenTransaction, requestsReplaced } from '../journal/open-transaction.ts';
import type { PodJournal } from '../journal/pod-journal.ts';
import type { JournalledTransaction, RequestedVolume, VolumeRecord } from '../journal/record.ts';
import type { Node } from '../node.ts';
import { compareLimits } from '../plan/amounts.ts';
import { podStepsLeft } from '../plan/pod-limits.ts';
import type { AdmittedRecord } from '../plan/resize-request.ts';
import type { Change, ContainerStep, PodTarget, Step } from '../plan/step.ts';
import type { ContainerLimits, PodState } from '../pods/pod-state.ts';
import { podCgroup } from '../pods/read-pod.ts';
import { isAlreadyAllocated, journalVolumes, recordRemounts } from '../volumes/volume-tracking.ts';
import { beforeAndAfter } from './container-values.ts';
import type { OnHigh } from './lower-memory.ts';

/** The part of a transaction that the journal records. */
export interface Journalled {
  /** The steps to journal. */
  readonly steps: readonly Step[];
  /** The changes of the caller's own call. */
  readonly changes: ContainerStep | undefined;
  readonly sizes: ReadonlyMap<string, RequestedVolume>;
  readonly state: PodState;
  readonly target: PodTarget;
  /** The container values that the transaction sets, changed or not. */
  readonly sets: readonly ContainerLimits[];
  /** The requests that the transaction sets, if they change. */
  readonly admitted?: AdmittedRecord | undefined;
}

/**
 * One transaction in the journal. Without steps, only an unanswered update can be left unfinished: it is journalled
 * afterwards, to be rolled back later. A requested size that a volume already has is journalled too, so that it applies
 * later.
 */
export class TransactionJournal {
  private constructor(
    private readonly node: Node,
    private readonly pod: PodDescription,
    private readonly all: Journalled,

    /** A transaction whose rollback has failed, and which this one replaces. */
    private readonly earlier: JournalledTransaction | undefined,

    /** Undefined without steps. */
    private readonly open: OpenTransaction | undefined,
  ) {}

  /** Journals steps before the first is applied. Throws JOURNAL_UNAVAILABLE, or memory.high read errors. */
  static async begin(node: Node, pod: PodDescription, all: Journalled): Promise<TransactionJournal> {
    const { journal, policies } = node;
    const { steps, sizes, admitted } = all;
    const volumes = policies.records(pod.sandboxId);
    const earlier = journal.transactionOf(pod);
    if (steps.length === 0 && admitted === undefined && isAlreadyAllocated(volumes, sizes))
      return new TransactionJournal(node, pod, all, earlier, undefined);
    const highs = await previousHighs(node, pod, steps);
    const records = policies.records(pod.sandboxId);
    const open = await journal.begin(pod, steps, { volumes: records, asked: sizes, highs, admitted });
    return new TransactionJournal(node, pod, all, earlier, open);
  }

  /** Awaited before memory.high is lowered. If undefined, do not lower it: the journal has no value to restore. */
  get onHigh(): OnHigh | undefined {
    const open = this.open;
    return open && ((cgroup, previous) => open.lowersHigh(cgroup, previous));
  }

  /** Records that a rollback begins. Never rejects. */
  async undoing(): Promise<void> {
    await tolerateJournalFailure(this.node.log, this.pod, this.open?.undoing());
  }

  /** Records that a step was skipped. Its failure may have left the pod's memory.high lowered. */
  skipped(error: unknown): void {
    if (isRollbackFailure(error)) this.open?.leavesHigh(podCgroup(this.pod), messageOf(error));
  }

  /** Ends a completed transaction. Never rejects. */
  async done(): Promise<void> {
    const { policies, journal, log } = this.node;
    const pod = this.pod;
    const earlier = this.earlier;
    if (this.open !== undefined) {
      policies.adopt(pod.sandboxId, this.all.sizes);
      recordRemounts(this.node, pod, this.#both);
      await tolerateJournalFailure(log, pod, this.open.end('done', this.#volumes, this.#leftToSettle()));
    } else if (earlier === undefined) await journalVolumes(this.node, pod);
    else {
      recordRemounts(this.node, pod, earlier.steps);
      const left = this.#leftToSettle();
      await tolerateJournalFailure(
        log,
        pod,
        journal.reopen(pod).end('done', this.#volumes, left, requestsReplaced(earlier)),
      );
    }
  }

  /** Ends a failed transaction that was rolled back as far as possible. Never rejects. */
  async failed(error: unknown): Promise<void> {
    const { journal, log } = this.node;
    const pod = this.pod;
    const isMarked = isLeft(journal, pod, error);
    const why = messageOf(error);
    if (this.open !== undefined) {
      if (!isMarked) recordRemounts(this.node, pod, this.#both);
      await tolerateJournalFailure(log, pod, isMarked ? this.open.failed(why) : this.open.end('undone', this.#volumes));
    } else if (this.all.changes !== undefined && isMarked) {
      const mark = async (step: ContainerStep): Promise<void> =>
        (await journal.begin(pod, [step], { volumes: this.#volumes })).failed(why);
      await tolerateJournalFailure(log, pod, mark(this.all.changes));
    }
  }

  get #volumes(): ReadonlyMap<string, VolumeRecord> {
    return this.node.policies.records(this.pod.sandboxId);
  }

  get #both(): readonly Step[] {
    return [...(this.earlier?.steps ?? []), ...this.all.steps];
  }

  /**
   * Returns the steps of an earlier transaction that remain once this one is done and has replaced its values: the
   * unanswered updates, and the pod limits without room for them.
   */
  #leftToSettle(): Step[] {
    const { sandboxId } = this.pod;
    const { unanswered } = this.node.journal;
    const { state, target, sets } = this.all;
    const steps = this.earlier?.steps ?? [];
    const left = unanswered.left(sandboxId, steps, sets);
    if (left.length === 0) return [];
    const settled = new Map<string, ContainerLimits>();
    // A container's first step has the values from before all its steps.
    for (const step of left.toReversed())
      settled.set(step.id, { ...settled.get(step.id), ...beforeAndAfter(step).from });
    const updates = { steps, unanswered: unanswered.of(sandboxId), settled: [...settled.values()] };
    return [...podStepsLeft(state, { ...target, containers: sets }, updates), ...left];
  }
}

/** Whether a failed transaction still needs rollback: a step, or the caller's own update, which may yet arrive. */
export const isLeft = (journal: PodJournal, { sandboxId }: PodDescription, error: unknown): boolean =>
  isRollbackFailure(error) || (isUnanswered(error) && journal.unanswered.of(sandboxId).length > 0);

/** A failed journal write is not fatal here: the recovery at the next start reads the kernel again. */
async function tolerateJournalFailure(
  log: Log,
  pod: PodDescription,
  written: Promise<void> | undefined,
): Promise<void> {
  try {
    await written;
  } catch (error) {
    log.warn({ pod: pod.sandboxId, error: messageOf(error) }, 'outcome of a resize not journalled');
  }
}

/** Returns memory.high of each cgroup in which these steps may lower it, for the journal. */
async function previousHighs(
  node: Node,
  pod: PodDescription,
  steps: readonly Step[],
): Promise<readonly PreviousHigh[]> {
  const highs: PreviousHigh[] = [];
  for (const step of steps) {
    const cgroup = await loweredCgroup(node, pod, step);
    if (cgroup === undefined) continue;
    try {
      highs.push({ cgroup, memoryHigh: node.tree.readHigh(cgroup) });
    } catch (error) {
      // The cgroup has ended: nothing will be lowered there.
      if (!isCgroupVanished(error)) throw error;
    }
  }
  return highs;
}

async function loweredCgroup(node: Node, pod: PodDescription, step: Step): Promise<CgroupPath | undefined> {
  if (step.kind === 'pod-memory') return isLowering(step) ? podCgroup(pod) : undefined;
  if (step.kind !== 'container' || step.memory === undefined || !isLowering(step.memory)) return undefined;
  return node.cgroups.running(pod, step.id);
}

const isLowering = ({ from, to }: Change<Limit<Bytes>>): boolean => compareLimits(to, from) < 0;
