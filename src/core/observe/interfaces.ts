/**
 * The interfaces through which other folders log and count, each with a no-op. Other folders do not know where their
 * events go.
 */

/** Fields of a log line. They never contain environment variables, annotations or credentials. */
export type LogFields = Readonly<Record<string, LogValue | undefined | readonly string[] | readonly LogRow[]>>;
type LogValue = string | number | boolean;
type LogRow = Readonly<Record<string, LogValue>>;

export interface Log {
  debug(fields: LogFields, message: string): void;
  info(fields: LogFields, message: string): void;
  warn(fields: LogFields, message: string): void;
  error(fields: LogFields, message: string): void;
}

/**
 * Events that are counted, timed and exposed to Prometheus. Labels come from small closed sets and never contain a pod
 * name. A new event needs a method here, a family in families.ts and a line in counters.ts.
 */
export interface Counters {
  /** The shim could not act on a request and forwarded it unchanged. */
  failOpen(reason: FailOpenReason): void;
  /**
   * A call that the shim intercepts or serves itself ended.
   * @param code gRPC status code
   * @param backendMs time spent in the backend; undefined if unknown
   */
  interceptedCall(method: string, code: number, milliseconds: number, backendMs?: number): void;
  /** A call that was forwarded unchanged ended. */
  passedCall(method: string, outcome: PassedOutcome): void;
  /** A connection was closed because the peer violated HTTP/2. */
  protocolError(code: string): void;
  /** The journal could not read or write a record. */
  journalFault(fault: JournalFault): void;
  /** An attempt to resize a pod ended, from any source. */
  resize(state: ResizeEnd, direction: ResizeDirection): void;
  /** A resize requested through the resize API or annotations entered a state (KEP-1287). */
  resizeState(state: string): void;
  /** A step was applied. */
  step(kind: string, milliseconds: number): void;
  /** Steps were rolled back after a later one failed. */
  undo(outcome: UndoOutcome): void;
  /** A resize that a restart or a failed rollback had left unfinished was recovered, or recovery failed. */
  recovery(outcome: RecoveryOutcome): void;
  /** Reclaim before lowering a memory limit ended. */
  reclaim(outcome: ReclaimOutcome, milliseconds: number): void;
  /** The OOM killer killed processes while a limit was being lowered. */
  oomKills(count: number): void;
  /** A notification to systemd failed. */
  notifyFault(): void;
  /** A remount of a volume ended. Counts rollbacks as well. */
  remount(direction: RemountDirection, result: RemountResult): void;
  /** An event of a memory decrease that kubelet has admitted. */
  foresight(event: ForesightEvent): void;
  /** Bytes were reclaimed for a limit that kubelet is about to lower. */
  foresightReclaimed(bytes: number): void;
  /** A line of the log was not written. */
  logDropped(reason: LogDrop): void;
  /** An object of the API server was ignored: it claims the uid of another pod, or it is too large. */
  ignoredPod(reason: IgnoredPodReason): void;
  /** Something was refused because a budget was used up (docs/limits.md). */
  refused(budget: Budget): void;
}

/** HTTP/2 error codes that end a connection, by their names (RFC 9113 7). UNKNOWN: any other. */
export const protocolErrorCodes = [
  'PROTOCOL_ERROR',
  'INTERNAL_ERROR',
  'FLOW_CONTROL_ERROR',
  'STREAM_CLOSED',
  'FRAME_SIZE_ERROR',
  'COMPRESSION_ERROR',
  'ENHANCE_YOUR_CALM',
  'UNKNOWN',
] as const;

/** Why a line is not in the log: the reader is too slow, or its message was logged too often. */
export const logDrops = ['slow_reader', 'rate'] as const;
export type LogDrop = (typeof logDrops)[number];

/** Why an object of the API server is ignored. */
export const ignoredPodReasons = [
  /** The pod of this node that has this uid has another namespace or name. */
  'other_pod',
  /** A mirror pod of a pod that is not static. */
  'not_static',
  /** A mirror pod with the uid of an earlier object; no pod of this node has it yet. */
  'duplicate_uid',
  /** Longer than any object that etcd stores: it is skipped. */
  'too_large',
] as const;
export type IgnoredPodReason = (typeof ignoredPodReasons)[number];

/** A budget whose use is refused when it is used up. */
export const budgets = [
  /** Client connections of the CRI socket or of the resize API. */
  'connections',
  /** The time in which a client connection has to begin. */
  'handshake',
  /** Streams of one client connection. */
  'streams',
  /** Calls that the shim handles itself, of all clients. */
  'handled_calls',
  /** Requests that wait for their last byte. */
  'requests',
  /** Bytes of decompressed requests. */
  'decompressed',
  /** Closed connections that wait for their peers to close. */
  'lingering',
  /** Open status pages. */
  'page_streams',
  /** Updates that wait for a slow reader of a status page. */
  'page_updates',
] as const;
export type Budget = (typeof budgets)[number];

export const foresightEvents = [
  /** A kubelet state file, or a part of it, cannot be read. */
  'unreadable',
  /** kubelet has admitted a lower memory limit, but does not apply it because usage is above it. */
  'stuck',
  /** Usage is held below a stuck limit until kubelet applies it. */
  'held',
  /** kubelet has applied a stuck limit. */
  'unstuck',
  /** The memory in use cannot be reclaimed, so the decrease waits. */
  'deferred',
  /** kubelet did not apply the limit in time. */
  'given_up',
] as const;
export type ForesightEvent = (typeof foresightEvents)[number];

/** How a call that was forwarded unchanged ended for its client. */
export type PassedOutcome = 'answered' | 'cancelled' | 'reset' | 'unavailable';

/** Result of an attempt to resize: done, rejected for now, rejected. */
export type ResizeEnd = 'Completed' | 'Deferred' | 'Infeasible';

/** Direction of limits and sizes; `unknown` if the request was rejected before the pod was read. */
export type ResizeDirection = 'up' | 'down' | 'both' | 'same' | 'unknown';

export const undoOutcomes = ['undone', 'failed'] as const;
export type UndoOutcome = (typeof undoOutcomes)[number];

/** `finished`: all steps had been applied. `undone`: the steps were rolled back. `gone`: the pod has ended. */
export const recoveryOutcomes = ['finished', 'undone', 'gone', 'failed'] as const;
export type RecoveryOutcome = (typeof recoveryOutcomes)[number];

export const reclaimOutcomes = ['done', 'not_reclaimable', 'timeout', 'failed'] as const;
export type ReclaimOutcome = (typeof reclaimOutcomes)[number];

export const failOpenReasons = [
  /** The pod or container is not in the registry, and the backend does not describe it. */
  'unknown_pod',
  /** cgroup files could not be read. */
  'unreadable_state',
  /** The request could not be decoded. */
  'undecodable',
  /** A response could not be amended. */
  'amend_failed',
] as const;
export type FailOpenReason = (typeof failOpenReasons)[number];

export type RemountDirection = 'grow' | 'shrink';

export type RemountResult =
  | 'done'
  /** The volume stores more than its new size. Nothing was changed. */
  | 'refused'
  | 'failed';

export const journalFaults = [
  /** A file is not a record: incomplete, of a version that is no longer read, or something else. */
  'bad_record',
  /** A newer shim has written the record, which is ignored. */
  'newer_record',
  /** The disk does not return the record (EIO), or the machine lacks descriptors or memory. It is read again. */
  'unread_record',
  /** No record can be written: the disk of the state folder is full, read-only or gone. */
  'unavailable',
] as const;
export type JournalFault = (typeof journalFaults)[number];

/** A prerequisite of resizes. `says` explains the result to users: the method that the shim uses, or the obstacle. */
export interface ReadinessCheck {
  readonly name: string;
  readonly ready: boolean;
  readonly says: string;
  /** Resizes work without it, so it does not affect {@link ReadinessReport.ready}. */
  readonly isOptional?: true;
}

/** Whether the shim can apply resizes: all mandatory checks are ready. It forwards calls either way. */
export interface ReadinessReport {
  readonly ready: boolean;
  readonly checks: readonly ReadinessCheck[];
  /** Why the shim forwards every call unchanged. Undefined: it acts on resizes. */
  readonly passThrough?: PassThrough;
}

/** `configured`: `intercept: false`. `invalid configuration`: the file has a problem, so none is intercepted. */
export type PassThrough = 'configured' | 'invalid configuration';

export const noLog: Log = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
};

/** When the bypass last served clients without the shim, in milliseconds since the epoch. */
export interface BypassTimes {
  /** Undefined if it has not served since the boot, as far as systemd remembers. */
  readonly start: number | undefined;
  /** Undefined while the bypass serves, and if it has not served. */
  readonly end: number | undefined;
}

/** Which runtime the kubelet of this node uses. */
export const endpointStates = [
  /** The shim. */
  'shim',
  /** The shim, but not after its next start: its configuration has another endpoint by now. */
  'next_start',
  /** Another runtime, although it has used the shim before. */
  'past',
  /** Another runtime, and it has never used the shim. */
  'unused',
  /** No kubelet is visible, or it is starting, or the bypass serves it. */
  'unknown',
] as const;
export type EndpointState = (typeof endpointStates)[number];

/** Values that are read at each scrape instead of being counted as events happen. */
export interface NodeReadings {
  readonly pods: number;
  /** Totals over all memory-backed volumes, in bytes. */
  readonly volumes: { readonly count: number; readonly size: number; readonly used: number };
  /** The state of each unfinished resize. */
  readonly unfinished: readonly string[];
  /** Whether kubelet's state files with admitted resizes exist and are read. */
  readonly foresight: boolean;
}
