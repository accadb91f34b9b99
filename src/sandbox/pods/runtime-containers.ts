/** A pod's containers as the runtime lists them and stores their limits. */

import { type CpuShares, cpuShares } from '../../core/index.ts';
import { exactMilliCpu } from '../../kubelet/index.ts';
import { type ContainerDescription, ContainerState, type LinuxContainerResources } from '../../runtime/index.ts';
import type { ListedContainers } from './container-lists.ts';
import type { Amounts, ContainerPhase } from './declared-pod.ts';
import type { EffectiveLimits } from './pod-state.ts';
import type { Registry } from './registry.ts';
import { storedLimits } from './stored-limits.ts';

/** The running container of a name, otherwise the newest one. */
export interface NewestContainer {
  readonly id: string;
  readonly name: string;
  readonly phase: Exclude<ContainerPhase, 'declared'>;
  /** Nanoseconds since the epoch. */
  readonly createdAt: bigint;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

/** By container name, in the order of creation. */
export type NewestContainers = ReadonlyMap<string, NewestContainer>;

/** Returns for each name the container that runs, otherwise the newest one. */
export function newestOf(containers: ListedContainers): NewestContainers {
  const all = containers.map(
    ({ id, metadata, state, created_at, labels, annotations }): NewestContainer => ({
      id,
      name: metadata?.name ?? '',
      phase: phaseOf(state),
      createdAt: created_at,
      labels,
      annotations,
    }),
  );
  const inOrder = all.sort((a, b) => Number(a.createdAt - b.createdAt));
  const byName = new Map<string, NewestContainer>();
  for (const container of inOrder) {
    if (byName.get(container.name)?.phase !== 'running') byName.set(container.name, container);
  }
  return new Map(inOrder.filter((one) => byName.get(one.name) === one).map((one) => [one.name, one]));
}

function phaseOf(state: number): NewestContainer['phase'] {
  if (state === ContainerState.CONTAINER_CREATED) return 'created';
  return state === ContainerState.CONTAINER_RUNNING ? 'running' : 'ended';
}

/** Returns the id and the state of a declared container. */
export const idAndPhase = (
  newest: NewestContainer | undefined,
): { readonly state: ContainerPhase; readonly id?: string } =>
  newest === undefined ? { state: 'declared' } : { state: newest.phase, id: newest.id };

/** k8s.io/kubelet pkg/types/labels.go, KubernetesContainerNameLabel: the name of the container in the pod's spec. */
const NAME_LABEL = 'io.kubernetes.container.name';
/** kubelet pkg/kubelet/kuberuntime/labels.go: the preStop hook of the container. */
const PRE_STOP_ANNOTATION = 'io.kubernetes.container.preStopHandler';

/** Whether kubelet has created the container. */
export const isOfKubelet = ({ labels }: NewestContainer): boolean => labels[NAME_LABEL] !== undefined;

/** Whether a container is an app container or a sidecar. Ordinary init and ephemeral containers cannot have a hook. */
export const isSurelyNoInit = ({ annotations }: NewestContainer): boolean =>
  annotations[PRE_STOP_ANNOTATION] !== undefined;

/** The runtime's stored values of a container. */
export interface StoredContainer {
  readonly limits: Amounts;
  readonly exitCode: number;
  /** Absent: not stored. */
  readonly shares?: CpuShares;
}

/** By container id. Containers that are removed meanwhile are left out. */
export type StoredContainers = ReadonlyMap<string, StoredContainer>;

/** Asks the backend for these containers. Rejects when the backend cannot be asked. */
export async function storedContainers(
  { registry }: { readonly registry: Pick<Registry, 'describeContainer'> },
  containers: readonly NewestContainer[],
): Promise<StoredContainers> {
  const described = await Promise.all(containers.map(({ id }) => registry.describeContainer(id)));
  return new Map(described.flatMap((one) => (one === undefined ? [] : [[one.containerId, storedContainer(one)]])));
}

function storedContainer({ resources, exitCode }: ContainerDescription): StoredContainer {
  const shares = resources?.cpu_shares ?? 0n;
  return {
    limits: storedAmounts(resources) ?? {},
    exitCode,
    ...(shares > 0n && { shares: cpuShares(Number(shares)) }),
  };
}

/** Whether nothing is declared. */
export const isEmpty = ({ memory, milliCpu }: Amounts): boolean => memory === undefined && milliCpu === undefined;

/** Returns the limits that the runtime stores for a container. Undefined when it stores none, or an invalid value. */
export function storedAmounts(resources: LinuxContainerResources | undefined): Amounts | undefined {
  const limits = storedLimits(resources);
  return limits && amountsOf(limits);
}

/** Returns limits as Kubernetes declares them: CPU in thousandths, rounded up. */
export function amountsOf({ memory, cpu }: EffectiveLimits): Amounts {
  return {
    ...(memory !== 'max' && { memory }),
    ...(cpu.quota !== 'max' && { milliCpu: Math.ceil(exactMilliCpu(cpu.quota, cpu.period)) }),
  };
}
