import { type CgroupPath, isCgroupVanished, type SwapLimits } from '../../cgroups/index.ts';
import { type Bytes, bytes, Code, type Counters, type Limit, Reason, ShimError, steadyNow } from '../../core/index.ts';
import { isUnanswered, type PodDescription } from '../../runtime/index.ts';
import type { MemoryVolumes } from '../../tmpfs/index.ts';
import { blockingUse } from '../admission/memory-in-use.ts';
import type { Node } from '../node.ts';
import { compareCpu, compareLimits } from '../plan/amounts.ts';
import { isVolumeInUse, StepSkipped } from '../plan/failures.ts';
import {
  fitsPreviousLimit,
  fitsRolledBack,
  hasRaisedContainer,
  ifTheyArrive,
  nextContainersExceed,
} from '../plan/pod-limits.ts';
import { type ContainerStep, describeStep, type Step } from '../plan/step.ts';
import { reversed, reversedContainer } from '../plan/steps.ts';
import type { DeclaredPod } from '../pods/declared-pod.ts';
import { podSubject } from '../pods/names.ts';
import type { ContainerLimits, PodState } from '../pods/pod-state.ts';
import { podCgroup, readPod } from '../pods/read-pod.ts';
import { ofKubelet } from '../volumes/policies.ts';
import { applyContainerStep, fitBurst, type OnUpdate, rollBackContainerStep, writeBurst } from './container-step.ts';
import { lowerMemory, type OnHigh, ROLLBACK_MS, reclaimBy, turnBy } from './lower-memory.ts';
import { isForeign } from './step-progress.ts';

/** The caller's own update of a container. */
export interface CallersUpdate {
  /** Its changes; undefined for none. */
  readonly changes: ContainerStep | undefined;
  /** The values that it sets, changed or not. */
  readonly sets: ContainerLimits;
}

const BUSY = 'the runtime is busy with another update of this container';

export interface ActionOptions {
  /** The caller's own update of a container. Undefined without such a call. */
  readonly asked?: CallersUpdate | undefined;
  /** The updates of containers that go with the pod's own steps, including the caller's. */
  readonly updates: readonly ContainerStep[];
  /** The declared pod: containers that do not run need limits too. Without it, a rollback counts only running. */
  readonly declared?: DeclaredPod | undefined;
  readonly onHigh?: OnHigh | undefined;
  /** The volumes that the request names. */
  readonly requested?: { has(volume: string): boolean } | undefined;
  /** Deadline for reclaiming memory, in milliseconds of the steady clock. A rollback has its own deadline. */
  readonly until?: number | undefined;
  /** The deadline of the transaction, by steadyNow. Default: none. */
  readonly deadline?: number | undefined;
}

/** Applies the steps of one pod to the kernel and the runtime, and rolls them back within the ordering rules. */
export class PodActions {
  readonly #cgroup: CgroupPath;
  readonly #until: number;
  /** Maximum time that an update without a memory decrease waits for its turn, by steadyNow. */
  readonly #turnUntil: number;
  /** Steps that failed before any change: updates that were never sent, and limits that were not lowered. */
  readonly #untouched = new Set<Step>();
  /** Steps that are applied and verified. */
  readonly #applied = new Set<Step>();
  /** Steps for which a plugin of the runtime has chosen other values. */
  readonly #chosen = new Set<Step>();
  /** The ids of the containers of {@link #chosen}. */
  readonly chosen = new Set<string>();
  /** The content of the file after a setting was written, by step. */
  readonly #printed = new Map<Step, string>();
  /** Whether the rollback so far could not restore a value. */
  #isIncomplete = false;

  constructor(
    private readonly node: Node,
    private readonly pod: PodDescription,
    private readonly options: ActionOptions,
  ) {
    this.#cgroup = podCgroup(pod);
    this.#until = options.until ?? reclaimBy(node.reclaimTimeout);
    this.#turnUntil = turnBy(node.reclaimTimeout, options.deadline);
  }

  /**
   * Applies and verifies a step, and records data for a rollback. Rejects on failure, and with {@link StepSkipped} for
   * an intended skip.
   */
  async apply(step: Step): Promise<void> {
    // A file may have another value even if its write has failed.
    const progress = { isSent: step.kind !== 'container' };
    const on: OnUpdate = {
      onSent: () => (progress.isSent = true),
      onChosen: () => this.#chosen.add(step),
    };
    const update = step.kind === 'container' ? updateOf(step) : undefined;
    try {
      if (this.#chosen.size > 0) await this.#assertFitsChosen(step);
      await this.#apply(step, this.#until, on);
      if (!this.#chosen.has(step)) this.#applied.add(step);
      else if (step.kind === 'container') this.chosen.add(step.id);
    } catch (error) {
      this.#failed(step, error, update, progress.isSent);
      throw error;
    }
    this.#answered(update);
  }

  /** Makes the caller's own call, which is this step of the plan. */
  async call<Answer>(step: Step, call: (onHigh: OnHigh | undefined) => Promise<Answer>): Promise<Answer> {
    const { asked, onHigh } = this.options;
    try {
      const answer = await call(onHigh);
      this.#answered(asked);
      return answer;
    } catch (error) {
      this.#failed(step, error, asked);
      throw error;
    }
  }

  /** Rolls back a step that was applied, fully or partly, as far as the pod's present state allows. */
  async rollBack(step: Step): Promise<void> {
    // The rollback would call the runtime, which the step may have waited for or may not have reached.
    if (this.#untouched.has(step)) return;
    try {
      this.#isIncomplete ||= this.#unanswered.length > 0;
      if (this.#isIncomplete) await this.#assertFitsRolledBack(step);
      const isRestored = await this.#rollBack(step);
      this.#isIncomplete ||= !isRestored;
    } catch (error) {
      // The pod or the volume has ended, which may have made the step fail: nothing is left to roll back.
      if (isCgroupVanished(error) || isVolumeGone(error)) return;
      // kubelet resizes the volume itself since.
      if (error instanceof StepSkipped) return;
      this.#isIncomplete = true;
      throw error;
    }
  }

  /** Records data for the rollback of a failed step. */
  #failed(step: Step, error: unknown, update: CallersUpdate | undefined, isSent = true): void {
    if (!isSent || isUnchanged(error) || error instanceof StepSkipped) this.#untouched.add(step);
    if (isSent && update?.changes && isUnanswered(error))
      this.node.journal.unanswered.add(this.pod.sandboxId, [update.changes]);
  }

  #answered(update: CallersUpdate | undefined): void {
    if (update) this.node.journal.unanswered.answered(this.pod.sandboxId, update.sets);
  }

  /** Updates of the pod's containers that the runtime has not answered. */
  get #unanswered(): readonly ContainerStep[] {
    return this.node.journal.unanswered.of(this.pod.sandboxId);
  }

  async #apply(step: Step, until: number, on: OnUpdate = {}): Promise<unknown> {
    const { tree, volumes, policies, kubelet, counters } = this.node;
    const cgroup = this.#cgroup;
    const { onHigh } = this.options;
    switch (step.kind) {
      case 'volume':
        // kubelet may resize the volume itself since the transaction began.
        await kubelet.refreshed();
        if (!policies.isKubelets(this.pod.sandboxId, step.volume)) return remount(volumes, this.pod, step, counters);
        if (this.options.requested?.has(step.volume)) throw ofKubelet(this.pod, step.volume);
        throw new StepSkipped(`kubelet resizes volume ${step.volume} itself`);
      case 'pod-memory': {
        const set = async (): Promise<void> => {
          await tree.write(cgroup, { file: 'memory.max', value: step.to });
        };
        return lowerMemory(this.node, { ...podSubject(this.pod), cgroup, memory: step }, until, set, onHigh);
      }
      case 'pod-cpu':
        await fitBurst(tree, cgroup, step.to);
        return tree.write(cgroup, { file: 'cpu.max', value: step.to });
      case 'pod-weight':
        return tree.write(cgroup, { file: 'cpu.weight', value: step.to });
      case 'pod-unified':
        return this.#writeUnified(step);
      case 'burst':
        return writeBurst(tree, this.pod, step);
      case 'container':
        return applyContainerStep(this.node, this.pod, step, { until, turnUntil: this.#turnUntil, onHigh, ...on });
      case 'runtime':
        return undefined;
    }
  }

  /** Writes a setting. Throws CGROUP_WRITE_FAILED if the kernel accepts the value, but the file has another one. */
  async #writeUnified(step: Extract<Step, { kind: 'pod-unified' }>): Promise<void> {
    const { tree } = this.node;
    const { key, to } = step;
    const { found } = await tree.write(this.#cgroup, { file: 'unified', key, value: to });
    this.#printed.set(step, found);
    if (tree.holdsSetting(key, to, found) !== false) return;
    const file = `${this.#cgroup}/${key}`;
    const message = `${file}: the file contains ${JSON.stringify(found)} after ${JSON.stringify(to)} was written`;
    const context = { pod: this.pod.sandboxId, file, asked: to, found };
    throw new ShimError(Code.INTERNAL, Reason.CGROUP_WRITE_FAILED, message, context);
  }

  /** Returns false if a pod limit stays raised. Does not overwrite values that another process has written since. */
  async #rollBack(step: Step): Promise<boolean> {
    const { tree, log } = this.node;
    const fields = { pod: this.pod.sandboxId, step: describeStep(step) };
    if (step.kind === 'runtime') return true;
    if (step.kind === 'container') {
      if (!(await this.#rollBackContainer(step)))
        log.warn(fields, 'step not rolled back: its values are no longer there');
    } else if (await isForeign(this.node, this.pod, step, this.#printed.get(step))) {
      log.warn(fields, 'step not rolled back: another process has written the value');
    } else if (step.kind === 'pod-memory' && (await this.#isInKernel(step.from))) {
      // Written again to update the systemd unit, which has the new limit. Usage is below it, so nothing is reclaimed.
      await tree.write(this.#cgroup, { file: 'memory.max', value: step.from });
    } else if (await this.#canRestorePodLimit(step)) {
      await this.#apply(reversed(step), steadyNow() + ROLLBACK_MS);
    } else {
      log.warn(fields, 'pod limit left raised: its containers need it');
      return false;
    }
    return true;
  }

  /**
   * Rolls a container's update back if the kernel or the runtime lacks the old values. Returns whether it did. After a
   * verified update, a value that another process has written since stays. A failed update may have written only some
   * values, or others.
   */
  #rollBackContainer(step: ContainerStep): Promise<boolean> {
    // An update that may still arrive would overwrite the old values. Recovery waits for it without the pod's lock.
    if (this.#unanswered.some(({ id }) => id === step.id))
      throw new Error('the runtime has not answered an update of this container, which may still arrive');
    const until = steadyNow() + ROLLBACK_MS;
    const options = { until, verified: this.#applied.has(step), onHigh: this.options.onHigh };
    const rollBack = (): Promise<boolean> => rollBackContainerStep(this.node, this.pod, step, options);
    return this.node.calls.runBy(step.id, rollBack, until, () => new Error(BUSY));
  }

  /** Whether this is the pod's present memory limit. */
  async #isInKernel(limit: Limit<Bytes>): Promise<boolean> {
    const { tree } = this.node;
    return tree.holds(limit, (await tree.readLimits(this.#cgroup)).memoryMax);
  }

  /** Reads the pod's state, assuming that all unanswered updates arrive. */
  async #readNow(): Promise<PodState> {
    return ifTheyArrive(await readPod(this.node.tree, this.pod, [], this.options.declared), this.#unanswered);
  }

  /**
   * KEP-1287: a value that could not be restored may use the space of a container that this step has lowered. Throws if
   * the container's old limits do not fit: the next rollback restores all of them. Otherwise the pod is unchanged, and
   * the sum may have exceeded the pod limit before.
   */
  async #assertFitsRolledBack(step: Step): Promise<void> {
    if (step.kind !== 'container' || fitsRolledBack(await this.#readNow(), step)) return;
    throw new Error('the pod limit has no room for the old limits until the steps after it are rolled back');
  }

  /**
   * KEP-1287: the sum of the containers' limits never exceeds the pod limit, also during a rollback. Returns whether
   * the pod's old limit may be restored: a call that failed, or could not be rolled back, may have left a container's
   * limit raised.
   */
  async #canRestorePodLimit(step: Step): Promise<boolean> {
    const { updates } = this.options;
    const cgroup = this.#cgroup;
    if (step.kind !== 'pod-memory' && step.kind !== 'pod-cpu') return true;
    const now = await this.#readNow();
    // A pod limit that was already below the sum before is restored in any case.
    if (hasRaisedContainer(now, updates, step.kind) && !fitsPreviousLimit(now, step)) return false;
    if (nextContainersExceed(now, updates, step)) return false;
    if (step.kind === 'pod-cpu') return true;
    // Assumes no swap, which may fill up meanwhile: a failed rollback is worse than a limit that stays raised.
    const swapAfter: SwapLimits = new Map([[cgroup, bytes(0)]]);
    const change = { cgroup, now: step.to, wanted: step.from, swapAfter };
    return (await blockingUse(this.node.tree, change)) === undefined;
  }

  /**
   * KEP-1287: the sum of the containers' limits never exceeds the pod limit, even if a plugin of the runtime prevented
   * a decrease. Throws {@link StepSkipped} for a pod limit decrease that the containers do not fit, and
   * CGROUP_WRITE_FAILED for an increase of a container.
   */
  async #assertFitsChosen(step: Step): Promise<void> {
    const now = await this.#readNow();
    if (step.kind === 'container' && fitsNow(now) && !fitsRolledBack(now, reversedContainer(step))) {
      const message = `container ${step.id}: the pod limit has no room for its limits: a plugin of the runtime has chosen others for another container`;
      const where = { pod: this.pod.sandboxId, container: step.id };
      throw new ShimError(Code.FAILED_PRECONDITION, Reason.CGROUP_WRITE_FAILED, message, where);
    }
    if (step.kind !== 'pod-memory' && step.kind !== 'pod-cpu') return;
    const isLowered =
      step.kind === 'pod-memory' ? compareLimits(step.to, step.from) < 0 : compareCpu(step.to, step.from) < 0;
    if (isLowered && !fitsPreviousLimit(now, reversed(step) as typeof step))
      throw new StepSkipped('a plugin of the runtime has chosen other limits for a container');
  }
}

/** Returns the update of a container that a step makes. */
function updateOf(step: ContainerStep): CallersUpdate {
  const { id, memory, cpu, shares } = step;
  const sets = {
    id,
    ...(memory && { memory: memory.to }),
    ...(cpu && { cpu: cpu.to }),
    ...(shares && { shares: shares.to }),
  };
  return { changes: step, sets };
}

/** Whether the containers fit the present pod limits. They may exceed them on purpose, or by a plugin's choice. */
const fitsNow = (now: PodState): boolean =>
  fitsPreviousLimit(now, { kind: 'pod-memory', from: now.memory, to: now.memory }) &&
  fitsPreviousLimit(now, { kind: 'pod-cpu', from: now.cpu, to: now.cpu });

async function remount(
  volumes: MemoryVolumes,
  pod: PodDescription,
  { volume, from, to }: Extract<Step, { kind: 'volume' }>,
  counters: Counters,
): Promise<void> {
  const direction = to < from ? 'shrink' : 'grow';
  try {
    const { outcome } = await volumes.remount({ podUid: pod.metadata.uid, name: volume }, to);
    if (outcome === 'remounted') counters.remount(direction, 'done');
  } catch (error) {
    counters.remount(direction, isVolumeInUse(error) ? 'refused' : 'failed');
    throw error;
  }
}

/** Whether a step failed before the limit was set. See {@link lowerMemory}. */
const isUnchanged = (error: unknown): boolean =>
  error instanceof ShimError &&
  (error.reason === Reason.MEMORY_NOT_RECLAIMABLE ||
    error.reason === Reason.RECLAIM_TIMEOUT ||
    error.reason === Reason.VOLUME_RESIZED_BY_KUBELET);

const isVolumeGone = (error: unknown): boolean => error instanceof ShimError && error.reason === Reason.UNKNOWN_VOLUME;
