import {
  type CgroupPath,
  type CgroupTree,
  criOfCpuMax,
  criOfMemoryMax,
  isCgroupVanished,
} from '../../cgroups/index.ts';
import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import {
  type Backend,
  ContainerState,
  type LinuxContainerResources,
  type PodDescription,
} from '../../runtime/index.ts';
import { ContainerValues, beforeAndAfter } from './container-values.ts';
import { type OnHigh, lowerMemory } from './lower-memory.ts';
import type { Counters, Log } from '../../observe/index.ts';
import {
  type ContainerLimits,
  NO_CPU_LIMIT,
  type Registry,
  containerSubject,
  locateCgroup,
  podCgroup,
  runningCgroup,
} from '../../sandbox/index.ts';
import { type ContainerStep, compareLimits } from '../model/index.ts';
import type { KeyedLock } from '../../core/concurrency/index.ts';

export interface ContainerStepParts {
  readonly registry: Registry;
  /** For calls of the shim's own. */
  readonly backend: Backend;
  readonly tree: CgroupTree;
  /** One update of the runtime at a time for a container, by its id: taken inside the pod's lock, or without it. */
  readonly calls: KeyedLock;
  /** Where the cgroups of running containers lie, by container id. */
  readonly cgroups: Map<string, CgroupPath>;
  readonly log: Log;
  readonly counters: Counters;
  /** Where processes are found: /proc unless a test says otherwise. */
  readonly procRoot?: string;
}

/**
 * Asks the runtime for one container's new values, and looks whether the kernel has them: a runtime that stops half-way may
 * have written one and not the other. Throws what the runtime answers, CGROUP_WRITE_FAILED when it said yes and the kernel
 * has something else.
 */
export async function updateAndVerify(
  context: Pick<ContainerStepParts, 'registry' | 'backend' | 'tree' | 'cgroups' | 'procRoot'>,
  pod: PodDescription,
  step: ContainerStep,
): Promise<void> {
  await context.backend.runtime('UpdateContainerResources', { container_id: step.id, linux: criResources(step) });
  const found = await kernelDifference(context, pod, step);
  if (found === undefined) return;
  const { file, asked, has } = found;
  const message = `${file}: the runtime accepted ${asked}, but the kernel has ${has}`;
  const where = { pod: pod.sandboxId, container: step.id, file, asked, found: has };
  throw new ShimError(Code.INTERNAL, Reason.CGROUP_WRITE_FAILED, message, where);
}

/**
 * The same, with a memory limit that is lowered once the use is under it: throws as {@link lowerMemory} too. Memory is
 * reclaimed before the runtime is called, and before its other updates of the container have to wait.
 */
export async function applyContainerStep(
  context: ContainerStepParts,
  pod: PodDescription,
  step: ContainerStep,
  until: number,
  onHigh?: OnHigh,
): Promise<void> {
  const update = (): Promise<void> => context.calls.run(step.id, () => updateAndVerify(context, pod, step));
  const { memory } = step;
  if (memory === undefined || compareLimits(memory.to, memory.from) >= 0) return update();
  const cgroup = await runningCgroup(context, pod, step.id);
  if (cgroup === undefined) return update();
  const { name } = context.registry.containersOf(pod.sandboxId).find(({ containerId }) => containerId === step.id) ?? {
    name: step.id,
  };
  return lowerMemory(context, { ...containerSubject({ name }, pod), cgroup, memory }, until, update, onHigh);
}

/**
 * Takes an update back, or what there is of it: without a call where kernel and runtime have the old values. Throws as
 * {@link applyContainerStep}: a limit that the container has outgrown meanwhile cannot come back.
 */
export async function rollBackContainerStep(
  context: Pick<ContainerStepParts, 'registry' | 'backend' | 'tree' | 'cgroups' | 'log' | 'counters' | 'procRoot'>,
  pod: PodDescription,
  step: ContainerStep,
  until: number,
  onHigh?: OnHigh,
): Promise<void> {
  await restoreLimits(context, pod, beforeAndAfter(step).from, until, onHigh);
}

/** Asks the runtime for those of these values that kernel or runtime do not have. Gives what was missing. Throws as above. */
export async function restoreLimits(
  context: Pick<ContainerStepParts, 'registry' | 'backend' | 'tree' | 'cgroups' | 'log' | 'counters' | 'procRoot'>,
  pod: PodDescription,
  wanted: ContainerLimits,
  until: number,
  onHigh?: OnHigh,
): Promise<ContainerStep | undefined> {
  const values = await ContainerValues.of(context, pod, wanted.id);
  const missing = values.missing(wanted);
  if (missing === undefined) return undefined;
  const step = values.stepTo(missing);
  await withReclaim(context, pod, values, step, until, () => updateAndVerify(context, pod, step), onHigh);
  return step;
}

/**
 * Runs `update`, once the use is under a memory limit that it lowers. At once where nothing would tell, after a crash, what
 * memory.high has to become again.
 */
async function withReclaim(
  context: { readonly tree: CgroupTree; readonly log: Log; readonly counters: Counters },
  pod: PodDescription,
  { container, kernel }: ContainerValues,
  { memory }: ContainerStep,
  until: number,
  update: () => Promise<void>,
  onHigh?: OnHigh,
): Promise<void> {
  if (memory === undefined || container === undefined || kernel === undefined || onHigh === undefined) return update();
  return lowerMemory(
    context,
    { ...containerSubject(container, pod), cgroup: kernel.cgroup, memory },
    until,
    update,
    onHigh,
  );
}

interface Difference {
  readonly file: string;
  readonly asked: string;
  readonly has: string;
}

/** Where the kernel has something else than the step asks for. A container that does not run has nothing in the kernel. */
async function kernelDifference(
  context: Pick<ContainerStepParts, 'registry' | 'tree' | 'cgroups' | 'procRoot'>,
  pod: PodDescription,
  step: ContainerStep,
): Promise<Difference | undefined> {
  const known = context.cgroups.get(step.id);
  // Mostly the kernel has it: then the backend, which takes far longer to answer, need not be asked where.
  if (known !== undefined && kernelAgrees(context, known, step)) return undefined;
  const container = await context.registry.describeContainer(step.id);
  if (container === undefined || container.state !== ContainerState.RUNNING) return undefined;
  const cgroup = await locateCgroup(context, container, pod);
  if (cgroup === undefined) return { file: podCgroup(pod), asked: 'a cgroup', has: 'none' };
  return differenceIn(context, cgroup, step);
}

function kernelAgrees(context: { readonly tree: CgroupTree }, cgroup: CgroupPath, step: ContainerStep): boolean {
  try {
    return differenceIn(context, cgroup, step) === undefined;
  } catch (error) {
    // It has ended: the backend knows whether it runs again.
    if (isCgroupVanished(error)) return false;
    throw error;
  }
}

function differenceIn(
  { tree }: { readonly tree: CgroupTree },
  cgroup: CgroupPath,
  { memory, cpu }: ContainerStep,
): Difference | undefined {
  const { memoryMax, cpuMax } = tree.readLimitsNow(cgroup);
  if (memory !== undefined && !tree.holds(memory.to, memoryMax))
    return { file: `${cgroup}/memory.max`, asked: String(memory.to), has: String(memoryMax) };
  const { quota, period } = cpuMax ?? NO_CPU_LIMIT;
  // Of the period the runtime may make what it likes.
  if (cpu !== undefined && quota !== cpu.to.quota && !tree.holdsCpu(cgroup, cpu.to, { quota, period }))
    return { file: `${cgroup}/cpu.max`, asked: String(cpu.to.quota), has: String(quota) };
  return undefined;
}

/** In CRI's words: what is not there keeps, -1 takes a limit away. */
function criResources({ memory, cpu, shares }: ContainerStep): Partial<LinuxContainerResources> {
  const max = cpu === undefined ? undefined : criOfCpuMax(cpu.to);
  return {
    ...(memory && { memory_limit_in_bytes: BigInt(criOfMemoryMax(memory.to)) }),
    ...(max && { cpu_quota: BigInt(max.quota), cpu_period: BigInt(max.period) }),
    ...(shares && { cpu_shares: BigInt(shares.to) }),
  };
}
