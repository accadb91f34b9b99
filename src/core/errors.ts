/**
 * The shim's own errors, the exit codes of its programs, and suggestions for misspelled names. Code that detects a
 * problem throws a {@link ShimError} with the place and the values; src/server/unary maps it to a gRPC status.
 */
import { Code } from './grpc.ts';

/** Stable reasons, sent as google.rpc.ErrorInfo.reason. See docs/errors.md. Released ones are never renamed. */
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
  VOLUME_RESIZED_BY_KUBELET: 'VOLUME_RESIZED_BY_KUBELET',
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
  /** The source of a complete list of the pod's containers: the pod has no others (`spec`, `kubelet-state`). */
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

/** Returns an INVALID_VALUE error with the field, the value, cut to 64 characters, and the problem with it. */
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

/** Returns the fields to log for an unexpected error: name, errno, stack. No message: it may contain a request. */
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

/** Exit codes of resizectl, for people and scripts. The program of the DaemonSet's pod reads them, too. */
export const Exit = {
  done: 0,
  failed: 1,
  usage: 2,
  infeasible: 3,
  deferred: 4,
  canceled: 5,
  undoFailed: 6,
  busy: 7,
} as const;
export type Exit = (typeof Exit)[keyof typeof Exit];

/** Maximum number of edits between two similar names. Each name must have at least three characters per edit. */
const MAX_EDITS = 2;

/** Longer names are not compared: the time grows with the product of both lengths, and a caller may give any name. */
const LONGEST = 64;

/**
 * Returns the name that is most similar to the given one. Undefined if no name is similar.
 * @param names the existing names
 * @param simplify returns the form of a name that is compared, such as the name in lower case
 */
export function nearest(
  given: string,
  names: readonly string[],
  simplify = (name: string): string => name,
): string | undefined {
  if (given.length > LONGEST) return undefined;
  const simple = simplify(given);
  const near = [...new Set(names)]
    .filter((name) => name.length <= LONGEST)
    .map((name) => ({ name, simplified: simplify(name) }))
    .map(({ name, simplified }) => ({ name, simplified, edits: distance(simple, simplified) }))
    .filter(
      ({ name, simplified, edits }) =>
        edits <= Math.min(MAX_EDITS, Math.ceil(simplified.length / 3)) || isPart(given, name),
    )
    .sort((one, other) => one.edits - other.edits || (one.name < other.name ? -1 : 1));
  return near[0]?.name;
}

/** Returns `: did you mean web?` for the name that is most similar to the given one; an empty string if none is. */
export function suggestion(given: string, names: readonly string[]): string {
  const name = nearest(given, names);
  return name === undefined ? '' : `: did you mean ${name}?`;
}

const isPart = (given: string, name: string): boolean => given.length >= 3 && name.includes(given);

/** Returns how many characters have to be inserted, removed or replaced (Levenshtein distance, by rows). */
function distance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (let index = 0; index < one.length; index += 1) {
    const next = [index + 1];
    for (let place = 0; place < other.length; place += 1) {
      const [left = 0, above = 0, diagonal = 0] = [next[place], row[place + 1], row[place]];
      next.push(Math.min(left + 1, above + 1, diagonal + (one[index] === other[place] ? 0 : 1)));
    }
    row = next;
  }
  return row[other.length] ?? 0;
}
