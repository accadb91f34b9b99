import { basename } from 'node:path';
import { type CgroupPath, type CgroupTree, CPU_BURST, isCgroupVanished, type SwapLimits } from '../../cgroups/index.ts';
import {
  type Bytes,
  Code,
  type CpuMax,
  isServiceError,
  type Limit,
  type Log,
  Reason,
  ShimError,
} from '../../core/index.ts';
import {
  type CallOptions,
  ContainerState,
  isNeverSent,
  isNotServing,
  type PodDescription,
} from '../../runtime/index.ts';
import { swapAfter } from '../admission/swap-after.ts';
import type { Node } from '../node.ts';
import { compareLimits } from '../plan/amounts.ts';
import { lateError } from '../plan/failures.ts';
import { MEMORY_HIGH, sizeIn } from '../plan/memory-qos-change.ts';
import { type ContainerStep, describeStep, type Step } from '../plan/step.ts';
import { loweredBurst } from '../plan/steps.ts';
import { containerSubject } from '../pods/names.ts';
import type { ContainerLimits, Limits } from '../pods/pod-state.ts';
import { NO_CPU_LIMIT, namedCgroup, podCgroup } from '../pods/read-pod.ts';
import { SWAP_MAX } from '../pods/stored-limits.ts';
import { criResources, isHugePages, isStored } from './container-update.ts';
import { beforeAndAfter, ContainerValues } from './container-values.ts';
import { inTurn, lowerMemory, type OnHigh } from './lower-memory.ts';

/** Called during an update. */
export interface OnUpdate {
  /** Called when the runtime may have received the update, and before the update fails. */
  readonly onSent?: (() => void) | undefined;
  /** Called when a plugin of the runtime (NRI) has chosen other values, which the kernel has. */
  readonly onChosen?: (() => void) | undefined;
}

/**
 * Sends a container's new values to the runtime, and verifies that the kernel has them, or has other values that the
 * runtime has stored (KEP-1287: the runtime's answer decides): a runtime that fails midway may have written only some
 * of them. Throws the runtime's error, and CGROUP_WRITE_FAILED if the runtime reports success but the kernel has a
 * value that the runtime has not stored.
 */
export async function updateAndVerify(
  node: Node,
  pod: PodDescription,
  step: ContainerStep,
  { onSent, onChosen }: OnUpdate = {},
): Promise<void> {
  const cgroup = node.cgroups.stored(step.id);
  try {
    if (step.cpu !== undefined && cgroup !== undefined && node.tree.exists(cgroup))
      await fitBurst(node.tree, cgroup, step.cpu.to);
    await node.backend.runtime('UpdateContainerResources', { container_id: step.id, linux: criResources(step) });
    onSent?.();
  } catch (error) {
    if (!isNeverSent(error)) onSent?.();
    throw error;
  }
  const found = await kernelDifferences(node, pod, step);
  const fault = found.find(({ isChosen }) => !isChosen);
  if (fault !== undefined) {
    const { file, asked, has } = fault;
    const message = `${file}: the runtime accepted ${asked}, but the kernel has ${has}`;
    const where = { pod: pod.sandboxId, container: step.id, file, asked, found: has };
    throw new ShimError(Code.INTERNAL, Reason.CGROUP_WRITE_FAILED, message, where);
  }
  if (found.length === 0) return;
  const files = found.map(({ file }) => basename(file)).join(', ');
  node.log.warn({ pod: pod.sandboxId, container: step.id, files }, 'runtime applied other values than requested');
  onChosen?.();
}

interface ApplyOptions extends OnUpdate {
  /** Deadline for reclaiming memory, in milliseconds of the steady clock. */
  readonly until: number;
  /** Until when an update without a memory decrease waits for its turn, in milliseconds of the steady clock. */
  readonly turnUntil: number;
  readonly onHigh?: OnHigh | undefined;
}

/**
 * Applies a container's step by {@link updateAndVerify}. A memory limit is lowered once usage is below it: also throws
 * like {@link lowerMemory}. Throws DEADLINE if any other step waits too long for its turn. Memory is reclaimed before
 * the step waits for its turn and calls the runtime.
 */
export async function applyContainerStep(
  node: Node,
  pod: PodDescription,
  step: ContainerStep,
  { until, turnUntil, onHigh, ...on }: ApplyOptions,
): Promise<void> {
  const update = (): Promise<void> => updateAndVerify(node, pod, step, on);
  const late = (): Error => lateError(pod, describeStep(step));
  const turn = { calls: node.calls, id: step.id, until: turnUntil, late };
  const { memory } = step;
  if (memory === undefined || compareLimits(memory.to, memory.from) >= 0) return inTurn(turn, update);
  const cgroup = await node.cgroups.running(pod, step.id);
  if (cgroup === undefined) return inTurn(turn, update);
  const known = node.registry.containersOf(pod.sandboxId).find(({ containerId }) => containerId === step.id);
  const subject = containerSubject({ name: known?.name ?? step.id }, pod);
  const change = { ...subject, cgroup, memory, high: highOf(step), swapAfter: swapAfterStep(cgroup, step), turn };
  return lowerMemory(node, change, until, update, onHigh);
}

interface RollBackOptions {
  /** Until when memory may be reclaimed, in milliseconds of the steady clock. */
  readonly until: number;
  /** Whether the step was applied and verified. A value that differs now was written by another process, and stays. */
  readonly verified: boolean;
  readonly onHigh?: OnHigh | undefined;
}

/**
 * Rolls back a container's step as far as it was applied, without a call if the kernel and the runtime have the old
 * values. Returns false if another process has written all of its values since. Throws like {@link applyContainerStep}:
 * a limit below the container's present usage cannot be restored.
 */
export async function rollBackContainerStep(
  node: Node,
  pod: PodDescription,
  step: ContainerStep,
  { until, verified, onHigh }: RollBackOptions,
): Promise<boolean> {
  const values = verified ? await ContainerValues.of(node, pod, step.id) : undefined;
  const left = values === undefined ? step : values.stillWritten(step);
  const foreign = values?.foreign(step);
  if (left !== undefined) {
    const hasForeignWeight = left.shares !== undefined && left.shares.from === left.shares.to;
    await restoreLimits(node, pod, beforeAndAfter(left).from, { until, onHigh, hasForeignWeight });
  }
  if (foreign !== undefined) logForeign(node.log, pod, foreign);
  return left !== undefined;
}

/** Logs the present values of a container that a rollback leaves, because another process has written them. */
export function logForeign(log: Log, pod: PodDescription, { id, ...values }: ContainerLimits): void {
  const found = foundForLog(values);
  log.warn({ pod: pod.sandboxId, container: id, found }, 'values not rolled back: another process has written them');
}

function foundForLog({ memory, cpu, shares, swap, settings = {} }: Limits): string {
  const found = [
    ...(memory === undefined ? [] : [`memory.max ${memory}`]),
    ...(cpu === undefined ? [] : [`cpu.max ${cpu.quota} ${cpu.period}`]),
    ...(shares === undefined ? [] : [`cpu shares ${shares}`]),
    ...(swap === undefined ? [] : [`${SWAP_MAX} ${swap}`]),
    ...Object.entries(settings).map(([file, text]) => `${file} ${text}`),
  ];
  return found.join(', ');
}

interface RestoreOptions extends Omit<RollBackOptions, 'verified'> {
  /** Whether the wanted shares are only written along: they match a weight that another process has written. */
  readonly hasForeignWeight?: boolean;
}

/**
 * Sends the wanted limits that the kernel or the runtime lacks to the runtime. Returns this step, or undefined if
 * nothing was missing. Throws like {@link applyContainerStep}.
 */
export async function restoreLimits(
  node: Node,
  pod: PodDescription,
  wanted: ContainerLimits,
  { until, onHigh, hasForeignWeight = false }: RestoreOptions,
): Promise<ContainerStep | undefined> {
  const values = await ContainerValues.of(node, pod, wanted.id);
  const missing = values.missing(wanted);
  if (missing === undefined) return undefined;
  const step = values.stepTo(missing);
  const update = (): Promise<void> => updateAndVerify(node, pod, step);
  const { container, kernel } = values;
  const { memory } = step;
  // Without onHigh, the journal cannot record the memory.high to restore after a crash, so nothing is reclaimed.
  if (memory === undefined || container === undefined || kernel === undefined || onHigh === undefined) await update();
  else {
    const { cgroup } = kernel;
    const set = { high: highOf(step), swapAfter: swapAfterStep(cgroup, step) };
    const change = { ...containerSubject(container, pod), cgroup, memory, ...set };
    await lowerMemory(node, change, until, update, onHigh);
  }
  const weight = hasForeignWeight ? values.weightBack(step) : undefined;
  if (weight !== undefined) await updateAndVerify(node, pod, weight);
  return step;
}

/**
 * Waits until an unanswered update can no longer arrive. The runtime applies the updates of one container one after the
 * other, so this repeats the container's present values and waits for that answer. Returns false if the runtime does
 * not answer in time. Throws if the present values cannot be read.
 */
export async function settleUpdate(
  node: Node,
  pod: PodDescription,
  update: ContainerStep,
  options: CallOptions,
): Promise<boolean> {
  try {
    const values = await ContainerValues.of(node, pod, update.id, options);
    const again = values.repeated(update);
    if (again === undefined) return true;
    const send = async (step: ContainerStep): Promise<void> => {
      const request = { container_id: step.id, linux: criResources(step) };
      await node.backend.runtime('UpdateContainerResources', request, options);
    };
    await send(again);
    const weight = values.foreign(update)?.shares === undefined ? undefined : values.weightBack(again);
    if (weight !== undefined) await send(weight);
    return true;
  } catch (error) {
    if (isNotServing(error)) return false;
    // A failed update has also waited for the earlier one.
    if (isServiceError(error)) return true;
    throw error;
  }
}

/** Returns the swap limit that a step lowers: from its own field, or from the settings. */
const swapAfterStep = (cgroup: CgroupPath, { swap, settings }: ContainerStep): SwapLimits | undefined =>
  swapAfter(cgroup, swap === undefined ? settings?.[SWAP_MAX] : { from: String(swap.from), to: String(swap.to) });

/** Returns the memory.high that a step sets. */
function highOf({ settings }: ContainerStep): Limit<Bytes> | undefined {
  const change = settings?.[MEMORY_HIGH];
  return change && sizeIn({ [MEMORY_HIGH]: change.to }, MEMORY_HIGH);
}

interface Difference {
  readonly file: string;
  readonly asked: string;
  readonly has: string;
}

type FoundDifference = Difference & {
  /** Whether the runtime has stored the kernel's value. */
  readonly isChosen: boolean;
};

/** Returns the files in which the kernel differs from the step. None for a container that does not run. */
async function kernelDifferences(
  node: Node,
  pod: PodDescription,
  step: ContainerStep,
): Promise<readonly FoundDifference[]> {
  const known = node.cgroups.stored(step.id);
  // Usually the kernel has the values at the known cgroup. Checking this first avoids a much slower backend call.
  if (known !== undefined && kernelAgrees(node.tree, known, step)) return [];
  const container = await node.registry.describeContainer(step.id);
  if (container === undefined || container.state !== ContainerState.CONTAINER_RUNNING) return [];
  const cgroup = await node.cgroups.locate(container, pod);
  if (cgroup === undefined) return [{ file: podCgroup(pod), asked: 'a cgroup', has: 'none', isChosen: false }];
  return differencesIn(node.tree, cgroup, step).map((difference) => ({
    ...difference,
    isChosen: isStored(node.tree, cgroup, container.resources, basename(difference.file)),
  }));
}

function kernelAgrees(tree: CgroupTree, cgroup: CgroupPath, step: ContainerStep): boolean {
  try {
    return differencesIn(tree, cgroup, step).length === 0;
  } catch (error) {
    // The container has ended: the backend knows whether it runs again.
    if (isCgroupVanished(error)) return false;
    throw error;
  }
}

function differencesIn(
  tree: CgroupTree,
  cgroup: CgroupPath,
  { memory, cpu, swap, settings = {} }: ContainerStep,
): readonly Difference[] {
  const found: Difference[] = [];
  const memoryMax = tree.readMemoryMax(cgroup);
  const differs = (file: string, asked: string | number, has: string | number): void =>
    void found.push({ file: `${cgroup}/${file}`, asked: String(asked), has: String(has) });
  if (memory !== undefined && !tree.holds(memory.to, memoryMax)) differs('memory.max', memory.to, memoryMax);
  const { quota, period } = tree.readCpuMax(cgroup) ?? NO_CPU_LIMIT;
  // The runtime may choose another period.
  if (cpu !== undefined && quota !== cpu.to.quota && !tree.holdsCpu(cgroup, cpu.to, { quota, period }))
    differs('cpu.max', cpu.to.quota, quota);
  const swapMax = swap === undefined ? undefined : tree.readSwapMax(cgroup);
  if (swap !== undefined && swapMax !== undefined && !tree.holds(swap.to, swapMax)) differs(SWAP_MAX, swap.to, swapMax);
  for (const [file, { to }] of Object.entries(settings)) {
    const has = tree.readSetting(cgroup, file);
    // A kernel without the controller has no such file.
    if (has !== undefined && tree.holdsSetting(file, to, has) === false && !isHugePages(file)) differs(file, to, has);
  }
  return found;
}

type BurstStep = Extract<Step, { kind: 'burst' }>;

/** Returns the cgroup whose burst a step changes. Throws CGROUP_UNAVAILABLE if there is none. */
export function burstCgroup(pod: PodDescription, { id }: BurstStep): CgroupPath {
  return (id === undefined ? undefined : namedCgroup(pod, id)) ?? podCgroup(pod);
}

/** Sets a burst, or the largest one that the present quota allows: it may have changed since the step was planned. */
export async function writeBurst(tree: CgroupTree, pod: PodDescription, step: BurstStep): Promise<void> {
  const cgroup = burstCgroup(pod, step);
  const to = loweredBurst(step.to, tree.readCpuMax(cgroup)) ?? step.to;
  await tree.write(cgroup, { file: 'unified', key: CPU_BURST, value: String(to) });
}

/** Lowers a burst that the kernel would reject with this quota: another process may have raised it since the plan. */
export async function fitBurst(tree: CgroupTree, cgroup: CgroupPath, cpu: CpuMax): Promise<void> {
  const burst = tree.readBurst(cgroup);
  const to = burst === undefined ? undefined : loweredBurst(burst, cpu);
  if (to !== undefined) await tree.write(cgroup, { file: 'unified', key: CPU_BURST, value: String(to) });
}
