import { Code, Reason, ShimError } from '../../core/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { desiredFields } from '../history/newest-values.ts';
import type { Node } from '../node.ts';
import { lateError } from '../plan/failures.ts';
import type { DesiredPod, ResizeOptions, ResizeOutcome } from '../plan/resize-request.ts';
import { stateAfter } from '../plan/step.ts';
import { podName } from '../pods/names.ts';
import { lockKeyOf } from '../pods/pod-identity.ts';
import type { Limits, PodState } from '../pods/pod-state.ts';
import { hasPodCgroup, readPod, readVolumes } from '../pods/read-pod.ts';
import type { Registry } from '../pods/registry.ts';
import { recoverPod, settleUpdates } from '../transaction/recover.ts';
import { planSteps, Transaction } from '../transaction/transaction.ts';
import { followKernel } from './forward-update.ts';
import { notifyRuntime } from './notify-runtime.ts';
import { assertStillRunning, withShares } from './pod-containers.ts';
import { type PreparedResize, preparations, prepareResize } from './prepare-resize.ts';

/** Resizes containers, pod and volumes atomically: all or nothing (KEP-1287, KEP-6030). {@link ResizePod}. */
export async function resizePod(
  node: Node,
  sandboxId: string,
  asked: DesiredPod,
  options: ResizeOptions,
): Promise<ResizeOutcome> {
  const found = await findPod(node.registry, sandboxId);
  const { sandboxId: id } = found;
  await settleUpdates(node, found, options.deadline);
  const resize = async (): Promise<ResizeOutcome> => {
    await node.journal.restored();
    // Under the lock: an earlier request may have changed the pod and its shares.
    const pod = await findPod(node.registry, id);
    await recoverPod(node, pod);
    return resizeUnderLock(node, pod, asked, options);
  };
  const { outcomes } = node;
  const report = node.history.changes(options);
  const run = options.dryRun ? resize : () => outcomes.track(id, resize, report);
  return node.lock.runBy(lockKeyOf(found), run, options.deadline, () => lateError(found, 'a resize of the pod'));
}

/** Resizes a pod whose lock is held. */
async function resizeUnderLock(
  node: Node,
  pod: PodDescription,
  asked: DesiredPod,
  options: ResizeOptions,
): Promise<ResizeOutcome> {
  const { prepared, desired, transaction } = await preparations.run(() => prepareAndBegin(node, pod, asked, options));
  const { state, target } = prepared;
  if (transaction === undefined) {
    const planned = planSteps(node.volumes, pod, state, target, prepared.stored);
    const steps = planned.map((step) => ({ step, at: 0, ms: 0 }));
    return { steps, before: state, after: stateAfter(state, target), memoryRequests: prepared.memoryRequests };
  }
  const steps = await orDrop(prepared, options, async () => {
    try {
      return await transaction.apply();
    } catch (error) {
      // A container that has ended meanwhile is the cause of a failure.
      await assertSurvived(node, pod, prepared, options);
      throw error;
    }
  });
  // The new values are useless for a container that has ended. They and the new requests are applied nevertheless.
  await assertSurvived(node, pod, prepared, options);
  const { chosen } = transaction;
  if (chosen.size > 0) await followChosen(node, pod, prepared, desired);
  const after = chosen.size > 0 ? await readPod(node.tree, pod, []) : stateAfter(state, target);
  await publishLimits(node, pod, prepared, after);
  if (options.writer !== undefined) await node.newest.applied(pod.sandboxId, options.writer, desiredFields(desired));
  const { memoryRequests } = prepared;
  return { steps, before: state, after: await readAfter(node, pod, stateAfter(state, target)), memoryRequests };
}

interface Begun {
  readonly prepared: PreparedResize;
  readonly desired: DesiredPod;
  /** Undefined for a dry run. */
  readonly transaction?: Transaction;
}

/** Reads the pod, admits the resize, and journals it. */
async function prepareAndBegin(
  node: Node,
  pod: PodDescription,
  asked: DesiredPod,
  options: ResizeOptions,
): Promise<Begun> {
  const desired = options.stillDesired?.() ?? asked;
  const prepared = await prepareResize(node, pod, desired, options);
  if (options.dryRun) return { prepared, desired };
  options.onAdmitted?.();
  const { state, target, stored } = prepared;
  const sizes = new Map([...desired.volumes].map(([name, policy]) => [name, { policy, annotated: false }]));
  const transaction = await orDrop(prepared, options, async () => {
    try {
      return await Transaction.begin(node, pod, state, target, {
        stored,
        deadline: options.deadline,
        sizes,
        admitted: prepared.requests.record,
      });
    } catch (error) {
      await assertSurvived(node, pod, prepared, options);
      throw error;
    }
  });
  return { prepared, desired, transaction };
}

/** Runs a part of an admitted resize. If that fails, drops the record of the pod's new requests. */
async function orDrop<Result>(
  prepared: PreparedResize,
  options: ResizeOptions,
  part: () => Promise<Result>,
): Promise<Result> {
  try {
    return await part();
  } catch (error) {
    if (prepared.requests.drop()) options.onRoomFreed?.();
    throw error;
  }
}

/** Throws NO_RUNNING_CONTAINER if a container has ended since the resize was admitted. */
async function assertSurvived(
  node: Node,
  pod: PodDescription,
  { target }: PreparedResize,
  { waits = false }: ResizeOptions,
): Promise<void> {
  if (!waits || node.journal.transactionOf(pod)?.failed !== undefined) return;
  const ids = (target.containers ?? []).map(({ id }) => id);
  await assertStillRunning(node.registry, pod, ids);
}

/** Adapts the pod limits that the request does not set to the container limits, if a plugin has chosen others. */
async function followChosen(
  node: Node,
  pod: PodDescription,
  { state, target, stored }: PreparedResize,
  { pod: asked }: DesiredPod,
): Promise<void> {
  const free = ({ memory, cpu }: Limits): Limits => ({
    ...(asked.memory === undefined && memory !== undefined && { memory }),
    ...(asked.cpu === undefined && cpu !== undefined && { cpu }),
  });
  const ids = new Set((target.containers ?? []).map(({ id }) => id));
  const { containers } = await readPod(node.tree, pod, []);
  const found = containers.filter(({ id }) => ids.has(id));
  // Containers that do not run start with what the runtime has stored.
  const idle = stored.map(({ id, memory, cpu }) => ({
    id,
    ...(memory && { memory: memory.to }),
    ...(cpu && { cpu: cpu.to }),
  }));
  await followKernel(node, pod, { before: state, planned: free(target), bound: free }, [...found, ...idle]);
}

async function findPod(registry: Registry, sandboxId: string): Promise<PodDescription> {
  const pod = await registry.pod(sandboxId);
  if (pod === undefined)
    throw new ShimError(Code.NOT_FOUND, Reason.UNKNOWN_POD, `no pod ${sandboxId}`, { pod: sandboxId });
  if (hasPodCgroup(pod)) return pod;
  const message = `pod ${podName(pod)} has no cgroup of its own`;
  throw new ShimError(Code.FAILED_PRECONDITION, Reason.CGROUP_UNAVAILABLE, message, { pod: sandboxId });
}

/** Reads the pod's state from the kernel, with the shares that the runtime has accepted. */
async function readAfter(node: Node, pod: PodDescription, wanted: PodState): Promise<PodState> {
  const read = await readPod(node.tree, pod, readVolumes(node.volumes, pod));
  return withShares(read, new Map(wanted.containers.map(({ id, shares }) => [id, shares])));
}

/** Stores the pod's new shares in the registry, and reports the new pod limits to the runtime. */
async function publishLimits(
  node: Node,
  pod: PodDescription,
  { target, shares }: PreparedResize,
  after: PodState,
): Promise<void> {
  if (shares !== undefined) node.registry.updatePod({ ...pod, cpuShares: shares });
  const { memory, cpu } = target;
  if (memory !== undefined || cpu !== undefined || shares !== undefined) await notifyRuntime(node, pod, after, shares);
}
