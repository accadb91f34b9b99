/**
 * The shim's own errors. Code that detects a problem throws a {@link ShimError} with the place and the values; src/grpc maps
 * it to a gRPC status.
 */
import { Code } from '../grpc/index.ts';

export { Code };
export { Exit } from './exit-codes.ts';
export { type ServiceError, isServiceError } from './service-error.ts';
export { nearest, suggestion } from './suggestion.ts';

/** Stable reasons, sent as google.rpc.ErrorInfo.reason and documented in docs/errors.md. Released reasons are never renamed. */
export const Reason = {
  INVALID_VALUE: 'INVALID_VALUE',
  UNKNOWN_POD: 'UNKNOWN_POD',
  POD_ENDED: 'POD_ENDED',
  SANDBOX_ENDED: 'SANDBOX_ENDED',
  NO_RUNNING_CONTAINER: 'NO_RUNNING_CONTAINER',
  UNKNOWN_CONTAINER: 'UNKNOWN_CONTAINER',
  UNKNOWN_VOLUME: 'UNKNOWN_VOLUME',
  INIT_CONTAINER_ENDED: 'INIT_CONTAINER_ENDED',
  INIT_CONTAINER_NOT_RESIZABLE: 'INIT_CONTAINER_NOT_RESIZABLE',
  EPHEMERAL_CONTAINER_NOT_RESIZABLE: 'EPHEMERAL_CONTAINER_NOT_RESIZABLE',
  INVALID_ANNOTATION: 'INVALID_ANNOTATION',
  MEMORY_NOT_RECLAIMABLE: 'MEMORY_NOT_RECLAIMABLE',
  RECLAIM_TIMEOUT: 'RECLAIM_TIMEOUT',
  VOLUME_IN_USE: 'VOLUME_IN_USE',
  VOLUME_NOT_ELIGIBLE: 'VOLUME_NOT_ELIGIBLE',
  VOLUME_EXCEEDS_SIZE_LIMIT: 'VOLUME_EXCEEDS_SIZE_LIMIT',
  CGROUP_UNAVAILABLE: 'CGROUP_UNAVAILABLE',
  CGROUP_WRITE_FAILED: 'CGROUP_WRITE_FAILED',
  UNIT_UNAVAILABLE: 'UNIT_UNAVAILABLE',
  SYSTEMD_UNAVAILABLE: 'SYSTEMD_UNAVAILABLE',
  REMOUNT_FAILED: 'REMOUNT_FAILED',
  UNDO_FAILED: 'UNDO_FAILED',
  DEADLINE: 'DEADLINE',
  EXCEEDS_NODE: 'EXCEEDS_NODE',
  NODE_FULL: 'NODE_FULL',
  RESTART_REQUIRED: 'RESTART_REQUIRED',
  EXCLUSIVE_CPUS: 'EXCLUSIVE_CPUS',
  PINNED_MEMORY: 'PINNED_MEMORY',
  SWAP_NOT_RESIZABLE: 'SWAP_NOT_RESIZABLE',
  QOS_CLASS_CHANGES: 'QOS_CLASS_CHANGES',
  JOURNAL_UNAVAILABLE: 'JOURNAL_UNAVAILABLE',
  AMBIGUOUS_POD: 'AMBIGUOUS_POD',
  UNKNOWN_RESIZE: 'UNKNOWN_RESIZE',
  TOO_MANY_RESIZES: 'TOO_MANY_RESIZES',
  TOO_MANY_WATCHERS: 'TOO_MANY_WATCHERS',
  WATCHER_TOO_SLOW: 'WATCHER_TOO_SLOW',
  OVERLOADED: 'OVERLOADED',
  BACKEND_UNAVAILABLE: 'BACKEND_UNAVAILABLE',
  BACKEND_FAILED: 'BACKEND_FAILED',
  UNKNOWN_SERVICE: 'UNKNOWN_SERVICE',
  STOPPING: 'STOPPING',
  SUPERSEDED: 'SUPERSEDED',
  INTERNAL: 'INTERNAL',
} as const;
export type Reason = (typeof Reason)[keyof typeof Reason];

/** The object and the values of an error. Values are in the form that users read ("67108864", "max"). */
export interface ErrorContext {
  readonly pod?: string;
  readonly container?: string;
  readonly volume?: string;
  /** ID of a resize, for GetResize of the resize API. */
  readonly resize?: string;
  /** Path in a request of the resize API: `containers["web"].limits.memory`. */
  readonly field?: string;
  /** The file that was read or written, such as memory.max, with its folder. */
  readonly file?: string;
  readonly asked?: string;
  readonly found?: string;
  /** Name of the kernel's error, such as EBUSY or EINVAL. */
  readonly errno?: string;
  /** Where the knowledge of a pod's containers comes from, if it is complete: the pod has no others (`spec`, `kubelet-state`). */
  readonly source?: string;
}

export class ShimError extends Error {
  override readonly name = 'ShimError';
  constructor(
    readonly code: Code,
    readonly reason: Reason,
    message: string,
    readonly context: ErrorContext = {},
    options?: { cause?: unknown },
  ) {
    super(message, options);
  }
}

/** Whether a rollback failed: values of the pod, or of its cgroups, are left as they were changed. */
export const isRollbackFailure = (error: unknown): boolean =>
  error instanceof ShimError && error.reason === Reason.UNDO_FAILED;

/** Longest part of an invalid value that an error quotes, in characters. */
const LONGEST_QUOTE = 64;

/** Returns an INVALID_VALUE error that names the field, quotes the value, cut to 64 characters, and says what is wrong with it. */
export function invalidValue(field: string, value: string, why: string, context: ErrorContext = {}): ShimError {
  const asked = value.length > LONGEST_QUOTE ? `${value.slice(0, LONGEST_QUOTE)}...` : value;
  const message = `${field}: ${JSON.stringify(asked)}: ${why}`;
  return new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_VALUE, message, { ...context, asked });
}

/** Returns the errno name of a Node system error, such as ENOENT; undefined for other errors. */
export function errnoOf(error: unknown): string | undefined {
  if (!(error instanceof Error) || !('code' in error)) return undefined;
  return typeof error.code === 'string' ? error.code : undefined;
}

/** Returns the message of any thrown value. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Returns the details of a failed gRPC call without the empty note that grpc-js appends to connection errors. */
export const grpcErrorText = (details: string): string => details.replace(/\. Resolution note: $/, '');

/** Returns the fields to log for an unexpected error: name, errno and stack. Not its message, which may contain a request. */
export function loggableError(error: unknown): { error: string; errno?: string; stack?: string[] } {
  if (!(error instanceof Error)) return { error: typeof error };
  const errno = errnoOf(error);
  const stack = (error.stack ?? '')
    .split('\n')
    .filter((line) => /^\s+at /.test(line))
    .slice(0, 8)
    .map((line) => line.trim());
  return { error: error.name, stack, ...(errno === undefined ? {} : { errno }) };
}

export { nameOfErrno } from './errno.ts';
