/** Conclusions about a call from an error of the backend. */
import { Code, isServiceError } from '../core/grpc.ts';
import { hasNoAnswer, isUnsent } from './channel/outcome.ts';

/**
 * Whether an error of the backend means that it lacks the method. containerd 2.2 answers UpdatePodSandboxResources with
 * Unknown "not implemented yet", which kubelet 1.36 treats as Unimplemented, too (kubelet
 * pkg/kubelet/kuberuntime/kuberuntime_container.go, updatePodSandboxResources).
 */
export function isUnimplemented(error: unknown): boolean {
  if (!isServiceError(error)) return false;
  return (
    error.code === Code.UNIMPLEMENTED || (error.code === Code.UNKNOWN && error.details.includes('not implemented'))
  );
}

/** Whether an error of the backend means that the pod or container does not exist. */
export function isNotFound(error: unknown): boolean {
  return isServiceError(error) && error.code === Code.NOT_FOUND;
}

/**
 * Whether a call has failed without an answer of the backend, so that it may still take effect: a killed containerd
 * leaves the runc that it has started, and a stopped containerd continues. Includes ends by the client's own limits
 * without an answer. Excludes calls that were never sent, which have no effect.
 */
export function isUnanswered(error: unknown): boolean {
  if (!isServiceError(error) || isUnsent(error)) return false;
  const { code } = error;
  return code === Code.UNAVAILABLE || code === Code.DEADLINE_EXCEEDED || code === Code.CANCELLED || hasNoAnswer(error);
}

/**
 * Whether a call has failed before it was sent, so that it has no effect: its deadline had passed, it has waited for a
 * connection or its turn, or it exceeds a limit of the client.
 */
export const isNeverSent = (error: unknown): boolean => isServiceError(error) && isUnsent(error);

/**
 * Whether the backend has answered that it still starts. containerd accepts connections before it serves calls: until
 * then it answers Unknown "server is not initialized yet" (instrumented_service.go).
 */
export const isStarting = ({ details }: { readonly details: string }): boolean =>
  details.includes('server is not initialized yet');

/** Whether a call has failed because the backend cannot be asked at present: it does not answer, or it still starts. */
export const isNotServing = (error: unknown): boolean =>
  isUnanswered(error) || isNeverSent(error) || (isServiceError(error) && isStarting(error));
