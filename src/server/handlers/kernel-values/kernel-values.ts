import {
  ContainerState,
  type PlacedStatus,
  type ReportedResources,
  readContainerStatuses,
  withResourcesOfStatuses,
} from '../../../runtime/index.ts';
import { isCgroupVanished } from '../../../cgroups/index.ts';
import type { MaybePromise } from '../../proxy/index.ts';
import { orUndefined } from '../serving/index.ts';
import { type KernelChangesParts, kernelChanges } from './kernel-changes.ts';

type Changes = Partial<ReportedResources> | undefined;

/**
 * KEP-1287, actual values: returns a message with the kernel's values in the container statuses of a repeated field. Undefined if the
 * message stays as it is, also if it cannot be read, which is counted.
 * @param name of the CRI message
 * @param field number of the repeated field
 */
export function withKernelValues(
  context: KernelChangesParts,
  name: string,
  message: Uint8Array,
  field: number,
): MaybePromise<Uint8Array | undefined> {
  const statuses = orUndefined(context, name, () => readContainerStatuses(message, field));
  const running = statuses?.filter(({ state }) => state === ContainerState.RUNNING) ?? [];
  const changes = running.map((status) => changesOrUndefined(context, status));
  if (changes.some((one) => one instanceof Promise))
    return Promise.all(changes.map((one) => Promise.resolve(one))).then((found) =>
      withChanges(message, running, found),
    );
  return withChanges(message, running, changes as readonly Changes[]);
}

/** Counts a container whose cgroup cannot be found or read, so that the others of its message are amended. */
function changesOrUndefined(context: KernelChangesParts, status: PlacedStatus): MaybePromise<Changes> {
  const unreadable = (error: unknown): undefined => {
    // Events tell of the past: of a pod that stops, each one says that containers run which have ended by now.
    if (!isCgroupVanished(error)) context.failOpen('unreadable_state', status.id, error);
  };
  const changes = kernelChanges(context, status, unreadable);
  return changes instanceof Promise ? changes.catch(unreadable) : changes;
}

function withChanges(
  message: Uint8Array,
  statuses: readonly PlacedStatus[],
  changes: readonly Changes[],
): Uint8Array | undefined {
  const changed = statuses.flatMap(({ place }, index) => {
    const resources = changes[index];
    return resources === undefined ? [] : [{ place, resources }];
  });
  return changed.length === 0 ? undefined : withResourcesOfStatuses(message, changed);
}
