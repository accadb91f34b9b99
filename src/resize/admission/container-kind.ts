import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { type DeclaredContainer, type PodState, podName } from '../../sandbox/index.ts';

/**
 * Throws INIT_CONTAINER_ENDED, INIT_CONTAINER_NOT_RESIZABLE or EPHEMERAL_CONTAINER_NOT_RESIZABLE for a container that
 * cannot be resized as far as a source tells its kind. Nothing is inferred: a container of unknown kind is resized.
 *
 * App containers and sidecars are resized. KEP-1287 excludes ordinary init containers. Kubernetes 1.36 resizes them
 * (feature gate InPlacePodVerticalScalingInitContainers, on by default): the API server unless their resizePolicy has
 * RestartContainer (pkg/apis/core/validation/validation.go, ValidatePodResize), and kubelet while they run
 * (pkg/kubelet/kuberuntime/kuberuntime_container.go, computeInitContainerActions).
 */
export function assertResizable(pod: PodDescription, { declared }: PodState, container: string): void {
  const found = declared?.containers.find(({ name }) => name === container);
  if (found?.kind === 'ephemeral')
    throw rejected(pod, container, Reason.EPHEMERAL_CONTAINER_NOT_RESIZABLE, 'is an ephemeral container');
  if (found?.kind !== 'init') return;
  if (found.state === 'ended')
    throw rejected(pod, container, Reason.INIT_CONTAINER_ENDED, 'is an init container that has ended');
  const why = whyFixed(found);
  if (why !== undefined)
    throw rejected(pod, container, Reason.INIT_CONTAINER_NOT_RESIZABLE, `is an init container, and ${why}`);
}

function whyFixed({ isFixed, resizePolicy, state }: DeclaredContainer): string | undefined {
  if (isFixed === true) return 'this kubelet does not resize init containers (1.36 and later do)';
  if (resizePolicy?.cpu === 'RestartContainer' || resizePolicy?.memory === 'RestartContainer')
    return 'its resizePolicy is RestartContainer';
  return state === 'declared' ? 'it has not been created' : undefined;
}

function rejected(pod: PodDescription, container: string, reason: Reason, what: string): ShimError {
  const message = `container ${container} of pod ${podName(pod)} ${what}: it cannot be resized`;
  return new ShimError(Code.FAILED_PRECONDITION, reason, message, { pod: pod.metadata.uid, container });
}
