import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { type PodState, podName } from '../../sandbox/index.ts';

/**
 * KEP-1287: only app containers and sidecars are resized. Throws INIT_CONTAINER_ENDED, INIT_CONTAINER_NOT_RESIZABLE or
 * EPHEMERAL_CONTAINER_NOT_RESIZABLE for a container that a source says to be of another kind. Nothing is inferred: a container of
 * unknown kind is resized.
 */
export function assertResizable(pod: PodDescription, { declared }: PodState, container: string): void {
  const found = declared?.containers.find(({ name }) => name === container);
  if (found?.kind === 'ephemeral')
    throw rejected(pod, container, Reason.EPHEMERAL_CONTAINER_NOT_RESIZABLE, 'an ephemeral container');
  if (found?.kind !== 'init') return;
  if (found.state === 'ended')
    throw rejected(pod, container, Reason.INIT_CONTAINER_ENDED, 'an init container that has ended');
  throw rejected(pod, container, Reason.INIT_CONTAINER_NOT_RESIZABLE, 'an init container that runs to its end');
}

function rejected(pod: PodDescription, container: string, reason: Reason, what: string): ShimError {
  const message = `container ${container} of pod ${podName(pod)} is ${what}: it cannot be resized`;
  return new ShimError(Code.FAILED_PRECONDITION, reason, message, { pod: pod.metadata.uid, container });
}
