import { ContainerState } from '../../runtime/index.ts';
import type { ListedContainers } from '../registry.ts';
import type { ContainerPhase } from './declared-pod.ts';

/** The container of a name that runs, otherwise the newest one. */
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
  if (state === ContainerState.CREATED) return 'created';
  return state === ContainerState.RUNNING ? 'running' : 'ended';
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

/** Whether the container is an app container or a sidecar: neither an ordinary init nor an ephemeral container may have a hook. */
export const isSurelyNoInit = ({ annotations }: NewestContainer): boolean =>
  annotations[PRE_STOP_ANNOTATION] !== undefined;
