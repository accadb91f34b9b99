import { type CgroupPath, assertUnified, cpuSharesOfCri } from '../cgroups/index.ts';
import { type VolumePolicy, readVolumeAnnotations } from '../tmpfs/index.ts';
import type { LinuxContainerResources, Messages, PodDescription } from '../runtime/index.ts';
import {
  type Bytes,
  type CpuMax,
  type CpuShares,
  type CpuWeight,
  type Limit,
  bytes,
  cpuShares,
  microseconds,
} from '../units/index.ts';
import { assertNotUnderUse } from './admission.ts';
import type { ResizeContext } from './context.ts';
import { failOpen } from './fail-open.ts';
import { limitsByName, onlyShrinking } from './limits.ts';
import { hasPodCgroup, podCgroup, readPod, readVolumes } from './live.ts';
import { perform } from './perform.ts';
import { mendFirst } from './mend.ts';
import { isMemoryTight } from './plan.ts';
import { assertHasVolumes } from './volumes.ts';
import { podWeight } from './pod-weight.ts';
import { reclaimBy } from './room.ts';
import { settleVolumes } from './settle.ts';
import { withoutSharesAsRead } from './shares-as-read.ts';
import type { PodState, PodTarget, UnifiedChange, VolumeState } from './state.ts';
import { wantedLimits } from './wish.ts';

type Request = Messages['UpdatePodSandboxResourcesRequest'];

/** Files that the fields' own steps write, in their place in the order. */
const OWN_STEPS = new Set(['memory.max', 'cpu.max']);

/**
 * UpdatePodSandboxResources: the pod's cgroup gets `resources` plus `overhead`, then the runtime is told. The same call
 * twice changes nothing; kubelet writes the same values itself, before or after.
 *
 * @param forward tells the runtime, and gives its answer; a runtime that lacks the call is answered for there.
 * @param deadline the caller's, in milliseconds since the epoch; without one there is none.
 * Throws ShimError before anything has changed (INVALID_VALUE, INVALID_ANNOTATION, MEMORY_NOT_RECLAIMABLE,
 * VOLUME_IN_USE), and RECLAIM_TIMEOUT and what a failing step or `forward` throws after the pod is as it was.
 */
export async function updatePod(
  context: ResizeContext,
  request: Request,
  forward: () => Promise<Buffer>,
  deadline?: number,
): Promise<Buffer> {
  const pod = await findPod(context, request.pod_sandbox_id);
  if (pod === undefined || !hasPodCgroup(pod)) return forward();
  const update = async (): Promise<Buffer> => {
    await mendFirst(context, pod);
    const prepared = await failOpen(context, pod.sandboxId, () => prepare(context, pod, request));
    return prepared === undefined ? forward() : resize(context, prepared, forward, reclaimBy(context, deadline));
  };
  return context.lock.run(pod.sandboxId, () => context.outcomes.track(pod.sandboxId, update));
}

async function findPod(context: ResizeContext, id: string): Promise<PodDescription | undefined> {
  try {
    const pod = await context.registry.pod(id);
    if (pod === undefined) context.failOpen('unknown_pod', id);
    return pod;
  } catch (error) {
    context.failOpen('unknown_pod', id, error);
    return undefined;
  }
}

interface Prepared {
  /** As the request says it is from now on. */
  readonly pod: PodDescription;
  readonly state: PodState;
  readonly limits: { readonly memory?: Limit<Bytes>; readonly cpu?: CpuMax; readonly weight?: CpuWeight };
  readonly unified: readonly UnifiedChange[];
  /** What the request's annotations ask for. */
  readonly sizes: ReadonlyMap<string, VolumePolicy>;
}

async function prepare(context: ResizeContext, known: PodDescription, asked: Request): Promise<Prepared> {
  const { tree } = context;
  const cgroup = podCgroup(known);
  const volumes = readVolumes(context.volumes, known);
  const state = await readPod(tree, known, volumes);
  const request = withoutSharesAsRead(asked, state.weight);
  context.policies.meet(known.sandboxId, volumes, state.memory);
  const limits = podLimits(known, state, request);
  const sizes = annotatedSizes(known, volumes, request.annotations);
  context.outcomes.desire(known.sandboxId, { pod: limits, volumes: sizes });
  if (limits.memory !== undefined) {
    const name = `${known.metadata.namespace}/${known.metadata.name}`;
    assertNotUnderUse(
      { text: `pod ${name}`, pod: name },
      limits.memory,
      state.memory,
      await tree.readMemoryUse(cgroup),
    );
  }
  const shares = sharesOf(request.resources, request.overhead);
  const pod = shares === undefined ? known : { ...known, cpuShares: shares };
  const unified = await unifiedChanges(context, cgroup, request.resources);
  return { pod, state, limits, unified, sizes };
}

async function resize(
  context: ResizeContext,
  prepared: Prepared,
  forward: () => Promise<Buffer>,
  until: number,
): Promise<Buffer> {
  const { pod, state, limits, unified } = prepared;
  const after = { ...state, ...limits };
  const sizes = context.policies.targets(
    pod.sandboxId,
    state.volumes,
    after.memory,
    limitsByName(context, pod, after),
    prepared.sizes,
  );
  // kubelet raises the pod first and its containers after it: volumes that grow wait for those.
  const settled = isMemoryTight(after);
  const target: PodTarget = {
    ...limits,
    unified,
    call: 'pod',
    volumes: settled ? sizes : onlyShrinking(state, sizes),
  };
  let response: Buffer = Buffer.alloc(0);
  await perform(context, pod, state, target, {
    call: async () => {
      response = await forward();
    },
    until,
  });
  context.registry.learnPod(pod);
  context.policies.adopt(pod.sandboxId, prepared.sizes);
  if (!settled) settleVolumes(context, pod);
  return response;
}

/** `resources` plus `overhead` for the pod's cgroup. What `resources` does not set stays, whatever the overhead. */
function podLimits(pod: PodDescription, state: PodState, { resources, overhead }: Request): Prepared['limits'] {
  if (resources === null) return {};
  const { memory, cpu } = wantedLimits(resources, state.cpu);
  const extra = overhead === null ? {} : wantedLimits(overhead, state.cpu);
  const shares = sharesOf(resources, overhead);
  const weight = shares === undefined ? undefined : podWeight(pod, state.weight, shares);
  return {
    ...(memory === undefined ? {} : { memory: memory === 'max' ? memory : bytes(memory + finite(extra.memory)) }),
    ...(cpu === undefined ? {} : { cpu: plusCpu(cpu, extra.cpu) }),
    ...(weight === undefined ? {} : { weight }),
  };
}

const finite = (limit: Limit<Bytes> | undefined): number => (limit === undefined || limit === 'max' ? 0 : limit);

function plusCpu(cpu: CpuMax, extra: CpuMax | undefined): CpuMax {
  if (cpu.quota === 'max' || extra === undefined || extra.quota === 'max') return cpu;
  return { ...cpu, quota: microseconds(cpu.quota + Math.ceil((extra.quota * cpu.period) / extra.period)) };
}

/** Shares of `resources` plus `overhead`; undefined when `resources` sets none. */
function sharesOf(
  resources: LinuxContainerResources | null,
  overhead: LinuxContainerResources | null,
): CpuShares | undefined {
  const asked = resources === null ? undefined : cpuSharesOfCri(resources.cpu_shares);
  const extra = overhead === null ? undefined : cpuSharesOfCri(overhead.cpu_shares);
  return asked === undefined ? undefined : cpuShares(asked + (extra ?? 0));
}

/** Throws INVALID_ANNOTATION or UNKNOWN_VOLUME: unlike a pod's own annotations, these are a request. */
function annotatedSizes(
  pod: PodDescription,
  volumes: readonly VolumeState[],
  annotations: Readonly<Record<string, string>>,
): ReadonlyMap<string, VolumePolicy> {
  const { policies, errors } = readVolumeAnnotations(annotations);
  const [error] = errors;
  if (error !== undefined) throw error;
  assertHasVolumes(pod, volumes, policies.keys());
  return policies;
}

async function unifiedChanges(
  context: ResizeContext,
  cgroup: CgroupPath,
  resources: LinuxContainerResources | null,
): Promise<UnifiedChange[]> {
  const changes: UnifiedChange[] = [];
  for (const [key, to] of Object.entries(resources?.unified ?? {})) {
    if (OWN_STEPS.has(key)) continue;
    assertUnified(key, to);
    changes.push({ key, from: await context.tree.readFile(cgroup, key), to });
  }
  return changes;
}
