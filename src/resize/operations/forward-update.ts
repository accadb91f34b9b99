import type { CgroupPath } from '../../cgroups/index.ts';
import { messageOf } from '../../core/errors/index.ts';
import { type PodDescription, isNeverSent, isUnanswered } from '../../runtime/index.ts';
import type { ContainerStep } from '../model/index.ts';
import {
  type ContainerLimits,
  type EffectiveLimits,
  type Limits,
  type LiveContainer,
  type PodState,
  readPod,
} from '../../sandbox/index.ts';
import {
  type OnHigh,
  type PerformParts,
  type RestoreLimitsParts,
  perform,
  verifyUpdate,
  withoutUnchanged,
} from '../execute/index.ts';
import { restoreAndLog } from './restore-and-log.ts';
import { derivedPodLimits } from '../values/index.ts';

/** An update of a running container that is forwarded to the runtime. */
export interface ForwardedUpdate {
  readonly cgroup: CgroupPath;
  /** The values to restore when the update fails; undefined where none were read. */
  readonly before: LiveContainer | undefined;
  /** The changes of the update, with those to values that the runtime has stored; undefined without any. */
  readonly changes: ContainerStep | undefined;
  /** Whether an update without an answer is left to the recovery of its pod: it may still arrive. */
  readonly isRecovered?: boolean;
}

export interface Forwarded {
  readonly response: Buffer;
  /** The container's limits, where the runtime has chosen others than the requested ones. */
  readonly found?: EffectiveLimits;
}

/**
 * Forwards an update to the runtime, and verifies it in the kernel (KEP-1287: the status has the new values once they are applied).
 * When it fails midway, or leaves an old limit in the kernel, restores the values from before. Throws what the runtime answers, and
 * CGROUP_WRITE_FAILED.
 */
export async function forwardUpdate(
  parts: RestoreLimitsParts,
  pod: PodDescription,
  { cgroup, before, changes, isRecovered = false }: ForwardedUpdate,
  forward: () => Promise<Buffer>,
  onHigh: OnHigh | undefined,
): Promise<Forwarded> {
  try {
    const response = await forward();
    if (changes === undefined) return { response };
    const { files, limits } = await verifyUpdate(parts, pod, cgroup, withoutUnchanged(changes));
    const fields = { pod: pod.sandboxId, container: changes.id, files: files.join(', ') };
    if (files.length > 0) parts.log.warn(fields, 'runtime applied other values than requested');
    return { response, ...(limits && { found: limits }) };
  } catch (error) {
    const isLeft = isNeverSent(error) || (isRecovered && isUnanswered(error));
    if (before !== undefined && !isLeft) await restoreAndLog(parts, pod, before, 'the runtime failed midway', onHigh);
    throw error;
  }
}

/** What an update was to do to the limits of its pod. */
interface PlannedPod {
  /** The pod before the update. */
  readonly before: PodState;
  /** The pod limits for the requested values, of which those that raise a limit are set. */
  readonly planned: Limits;
  /** Bounds the pod limits that are derived. */
  readonly bound: (derived: Limits) => Limits;
}

/**
 * Sets the pod limits that go with what the kernel has for the containers, where the runtime has chosen other limits than the requested
 * ones. Never rejects: the caller's update is applied.
 */
export async function followKernel(
  parts: PerformParts,
  pod: PodDescription,
  { before, planned, bound }: PlannedPod,
  containers: readonly ContainerLimits[],
): Promise<void> {
  try {
    const now = await readPod(parts.tree, pod, []);
    // A limit that this update has raised goes back, unless the container needs it.
    const raised = {
      ...(planned.memory !== undefined && now.memory === planned.memory && { memory: before.memory }),
      ...(planned.cpu !== undefined && now.cpu.quota === planned.cpu.quota && { cpu: before.cpu }),
    };
    const target = { ...raised, ...bound(await derivedPodLimits(parts, pod, before, containers)) };
    await perform(parts, pod, now, { ...target, call: 'none', volumes: new Map() });
  } catch (error) {
    parts.log.warn(
      { pod: pod.sandboxId, error: messageOf(error) },
      'pod limit not adapted to the limits in the kernel',
    );
  }
}
