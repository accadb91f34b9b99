import { type CgroupTree, isCgroupVanished, isSameUnified } from '../../cgroups/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { isSameSize } from '../../tmpfs/index.ts';
import type { Node } from '../node.ts';
import type { ContainerStep, Step } from '../plan/step.ts';
import { reversed } from '../plan/steps.ts';
import type { ContainerLimits, PodState } from '../pods/pod-state.ts';
import { NO_CPU_LIMIT, podCgroup } from '../pods/read-pod.ts';
import { burstCgroup } from './container-step.ts';
import { beforeAndAfter, ContainerValues, withoutUnchanged } from './container-values.ts';

/** A step that changes one value of the pod itself, or of a volume. */
export type PodStep = Exclude<Step, ContainerStep | { readonly kind: 'runtime' }>;

/** How much of a step an unfinished transaction has applied. */
export interface StepProgress {
  /** The applied part of the step; undefined when there is none. */
  readonly written: Step | undefined;
  /** Whether the whole step is applied. */
  readonly isComplete: boolean;
  /** A container's present values that another process wrote since. Undefined if none, and for other steps. */
  readonly foreign?: ContainerLimits | undefined;
}

/**
 * Compares a step with the kernel and with the runtime's stored values. A value that is neither the step's old nor its
 * new one was written by another process since, and does not count as applied. The size of a volume
 * that kubelet resizes itself is not the shim's.
 */
export async function progressOf(node: Node, pod: PodDescription, state: PodState, step: Step): Promise<StepProgress> {
  if (step.kind === 'container') return containerProgress(node, pod, step);
  const isDone = await isApplied(node.tree, pod, state, step).catch((error: unknown) => {
    // The container has ended, and its burst with it.
    if (step.kind === 'burst' && isCgroupVanished(error)) return undefined;
    throw error;
  });
  if (isDone === undefined) return { written: undefined, isComplete: true };
  return { written: isDone && !isOfKubelet(node, pod, step) ? step : undefined, isComplete: isDone };
}

/**
 * Whether another process has written the value of a step since: it is neither the step's old nor its new one. With the
 * old value, a step may be applied in part: a unit of systemd may have its new value when the file does not.
 *
 * @param printed what the kernel printed after the step was written, for a setting whose format is not known
 */
export async function isForeign(node: Node, pod: PodDescription, step: PodStep, printed?: string): Promise<boolean> {
  if (isOfKubelet(node, pod, step)) return true;
  if (step.kind === 'pod-unified' && printed === (await node.tree.readFile(podCgroup(pod), step.key))) return false;
  const state = await valuesNow(node, pod, step);
  return (
    !(await isApplied(node.tree, pod, state, step)) &&
    !(await isApplied(node.tree, pod, state, reversed(step) as PodStep))
  );
}

/** Whether kubelet resizes the volume of a step since: the step is no longer the shim's (KEP-6030). */
const isOfKubelet = ({ policies }: Node, pod: PodDescription, step: Step): boolean =>
  step.kind === 'volume' && policies.isKubelets(pod.sandboxId, step.volume);

type PodValues = Pick<PodState, 'memory' | 'cpu' | 'weight' | 'volumes'>;

/** Reads the values that {@link isApplied} compares with a step. A volume may outlive the pod's cgroup. */
async function valuesNow(
  { tree, volumes }: Parameters<typeof isForeign>[0],
  pod: PodDescription,
  step: PodStep,
): Promise<PodValues> {
  if (step.kind === 'volume') {
    const { size } = volumes.measure({ podUid: pod.metadata.uid, name: step.volume });
    return { memory: 'max', cpu: NO_CPU_LIMIT, weight: undefined, volumes: [{ name: step.volume, size }] };
  }
  const { memoryMax, cpuMax, cpuWeight } = await tree.readLimits(podCgroup(pod));
  return { memory: memoryMax, cpu: cpuMax ?? NO_CPU_LIMIT, weight: cpuWeight, volumes: [] };
}

async function isApplied(
  tree: CgroupTree,
  pod: PodDescription,
  state: PodValues,
  step: Exclude<Step, ContainerStep>,
): Promise<boolean> {
  switch (step.kind) {
    case 'volume':
      return state.volumes.some(({ name, size }) => name === step.volume && isSameSize(step.to, size));
    case 'pod-memory':
      return tree.holds(step.to, state.memory);
    case 'pod-cpu':
      return tree.holdsCpu(podCgroup(pod), step.to, state.cpu);
    case 'pod-weight':
      return step.to === state.weight;
    case 'pod-unified':
      return isUnifiedWritten(tree, pod, step);
    case 'burst':
      return tree.readBurst(burstCgroup(pod, step)) === step.to;
    case 'runtime':
      return true;
  }
}

async function isUnifiedWritten(
  tree: CgroupTree,
  pod: PodDescription,
  { key, to }: Extract<Step, { kind: 'pod-unified' }>,
): Promise<boolean> {
  const found = await tree.readFile(podCgroup(pod), key);
  return tree.holdsSetting(key, to, found) ?? isSameUnified(to, found);
}

async function containerProgress(node: Node, pod: PodDescription, step: ContainerStep): Promise<StepProgress> {
  const values = await ContainerValues.of(node, pod, step.id);
  const { to } = beforeAndAfter(withoutUnchanged(step));
  return { written: values.stillWritten(step), isComplete: values.hasAll(to), foreign: values.foreign(step) };
}
