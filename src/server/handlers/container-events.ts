import type { MessageAmendment } from './serving/index.ts';
import { type KernelChangesParts, withKernelValues } from './kernel-values/index.ts';

/** Field number of `containers_statuses` in ContainerEventResponse (CRI v1). */
const CONTAINERS_STATUSES = 5;

/**
 * Amends the events of GetContainerEvents. Each event has the statuses of its pod's containers: running ones get the
 * kernel's values. kubelet with Evented PLEG takes its pods' status from there, and does not call ContainerStatus.
 */
export function containerEvents(context: KernelChangesParts): MessageAmendment {
  return (event) => withKernelValues(context, 'ContainerEventResponse', event, CONTAINERS_STATUSES);
}
