import { messageOf } from '../../../core/errors/index.ts';
import {
  type Backend,
  type ContainerDescription,
  ContainerState,
  type LinuxContainerResources,
  type PodDescription,
} from '../../../runtime/index.ts';
import {
  type DeclarePodParts,
  type EffectiveLimits,
  type FailOpen,
  type Limits,
  type Registry,
  hasPodCgroup,
  identityOf,
  lockKeyOf,
  readDeclaredPod,
  storedLimits,
} from '../../../sandbox/index.ts';
import { withoutWritten } from '../../foresight/index.ts';
import type { ResizeHistory } from '../../history/index.ts';
import { type PerformParts, type RecoverParts, perform, tryRecoverPod } from '../../execute/index.ts';
import { compareCpu, compareLimits } from '../../model/index.ts';
import { podLimitsBetween } from '../../plan/index.ts';
import { type NamedContainer, type PodChange, isReplacement, replacedContainers } from './replaced-containers.ts';
import { limitsBeforeRestart, restartedContainer } from './restarted-container.ts';

export interface RaisePodLimitParts extends PerformParts, DeclarePodParts {
  /** Client for the shim's own calls. */
  readonly backend: Backend;
  readonly registry: Registry;
}

export interface AdmitRestartParts extends RaisePodLimitParts, RecoverParts {
  /** Counts a request that is forwarded unchanged, and logs it once for each id and reason. */
  readonly failOpen: FailOpen;
  readonly history: ResizeHistory;
}

/** What raises a pod limit. Undefined if the limit suffices. */
type Raise = (() => Promise<void>) | undefined;

/**
 * Raises the pod limit for a container that starts with higher limits than it had in its last run, or was created with: kubelet
 * does not (kubernetes/kubernetes#138760). The caller holds the pod's lock. Never rejects: the container starts as without the
 * shim.
 */
export async function raisePodLimit(
  parts: RaisePodLimitParts,
  pod: PodDescription,
  { containerId, name }: NamedContainer,
  before: EffectiveLimits | undefined,
  after: EffectiveLimits | undefined,
): Promise<void> {
  if (before === undefined || after === undefined || !hasPodCgroup(pod)) return;
  try {
    const raise = await raiseFor(parts, pod, { containerId, name }, { before, after });
    await raise?.();
  } catch (error) {
    parts.log.warn({ pod: pod.sandboxId, container: containerId, error: messageOf(error) }, 'pod limit not raised');
  }
}

/** Returns what raises the pod limit for a container whose limits change; undefined if the limit suffices. */
async function raiseFor(
  parts: RaisePodLimitParts,
  pod: PodDescription,
  container: NamedContainer,
  { before, after }: { readonly before: EffectiveLimits; readonly after: EffectiveLimits },
): Promise<Raise> {
  const state = await readDeclaredPod(parts, pod, []);
  const unanswered = parts.journal.unanswered.of(pod.sandboxId);
  const change = restartedContainer(state, container, { before, after }, unanswered);
  return raiseBetween(parts, pod, container.containerId, change, (raised) => withoutWritten(parts, pod, state, raised));
}

/**
 * Returns what raises the pod limit for a change of its containers; undefined if the limit suffices.
 * @param bound omits pod limits that are not raised
 */
function raiseBetween(
  parts: RaisePodLimitParts,
  pod: PodDescription,
  containerId: string,
  { state, before, after }: PodChange,
  bound: (raised: Limits) => Limits = (raised) => raised,
): Raise {
  const { memory, cpu } = podLimitsBetween(before, after);
  const raised = bound({
    ...(memory !== undefined && compareLimits(memory, state.memory) > 0 && { memory }),
    ...(cpu !== undefined && compareCpu(cpu, state.cpu) > 0 && { cpu }),
  });
  if (Object.keys(raised).length === 0) return undefined;
  return async () => {
    await perform(parts, pod, state, { ...raised, call: 'none', volumes: new Map() });
    parts.log.info({ pod: pod.sandboxId, container: containerId }, 'pod limit raised for a container');
  };
}

/**
 * KEP-1287, order: raises the pod limit for a new container that replaces one of the same name and has higher limits, also one of a
 * sandbox that has ended: kubelet does not write the cgroup of a pod that exists.
 */
export async function raisePodForRestart(
  parts: AdmitRestartParts,
  sandboxId: string,
  containerId: string,
  name: string,
  resources: LinuxContainerResources | null | undefined,
): Promise<void> {
  const after = storedLimits(resources);
  if (after === undefined) return;
  try {
    const pod = await parts.registry.pod(sandboxId);
    if (pod === undefined) return;
    // A first container does not wait for a resize of its pod.
    if (!isReplacement(pod) && (await previousContainer(parts, pod, containerId, name)) === undefined) return;
    await parts.lock.run(lockKeyOf(pod), async () => {
      await tryRecoverPod(parts, pod);
      if (!hasPodCgroup(pod)) return;
      const previous = await previousContainer(parts, pod, containerId, name);
      await raiseAndRecord(parts, pod, containerId, () =>
        previous === undefined
          ? raiseForReplaced(parts, pod, { containerId, name }, after)
          : raiseForRestarted(parts, pod, { containerId, name }, previous, after),
      );
    });
  } catch (error) {
    parts.failOpen('unreadable_state', containerId, error);
  }
}

async function raiseForRestarted(
  parts: AdmitRestartParts,
  pod: PodDescription,
  container: NamedContainer,
  previous: ContainerDescription,
  after: EffectiveLimits,
): Promise<Raise> {
  const before = await limitsBeforeRestart(parts, pod, container, previous);
  return before && raiseFor(parts, pod, container, { before, after });
}

async function raiseForReplaced(
  parts: AdmitRestartParts,
  pod: PodDescription,
  container: NamedContainer,
  after: EffectiveLimits,
): Promise<Raise> {
  const change = await replacedContainers(parts, pod, container, after);
  return change && raiseBetween(parts, pod, container.containerId, change);
}

/** Like {@link raisePodLimit}, with an entry in the history: no request of a client has one for it. */
async function raiseAndRecord(
  parts: AdmitRestartParts,
  pod: PodDescription,
  containerId: string,
  prepare: () => Promise<Raise>,
): Promise<void> {
  try {
    const raise = await prepare();
    if (raise === undefined) return;
    const report = parts.history.request(identityOf(pod), { kind: 'shim' });
    await parts.outcomes.track(pod.sandboxId, raise, report);
  } catch (error) {
    parts.log.warn({ pod: pod.sandboxId, container: containerId, error: messageOf(error) }, 'pod limit not raised');
  }
}

/**
 * Returns the last container of this name that has run. One that never started had no effect on the pod limit: its client may not
 * know it, when the shim ended before it answered.
 */
async function previousContainer(
  { registry }: { readonly registry: Registry },
  pod: PodDescription,
  containerId: string,
  name: string,
): Promise<ContainerDescription | undefined> {
  // Listed by the backend: the registry does not know containers that were created without the shim.
  const containers = await registry.listContainers(pod);
  const sameName = containers.filter(({ id, metadata }) => id !== containerId && metadata?.name === name);
  sameName.sort((a, b) => Number(b.created_at - a.created_at));
  for (const { id } of sameName) {
    const previous = await registry.describeContainer(id);
    if (previous !== undefined && previous.state !== ContainerState.CREATED) return previous;
  }
  return undefined;
}
