/**
 * What the shim says about itself, behind small interfaces with a no-op each: the other folders report, and do not know
 * who listens.
 */

/** Field values that may appear in a log line. Never environment values, annotations or credentials. */
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
 * Events that are counted, timed and shown to Prometheus. Labels are from small closed sets: never the name of a pod. A new one
 * is a method here, a no-op below, a family in families.ts and a line in counters.ts.
 */
export interface Counters {
  /** A request that was meant to be acted on went on as it came, because acting was not possible. */
  failOpen(reason: FailOpenReason): void;
  /**
   * A call that the shim acts on or serves itself ended.
   * @param code gRPC's
   * @param backendMs how much of the time was the backend's; undefined where that is not known
   */
  interceptedCall(method: string, code: number, milliseconds: number, backendMs?: number): void;
  /** A call ended that only passed. */
  passedCall(method: string, outcome: PassedOutcome): void;
  /** A connection ended because a peer broke HTTP/2. */
  protocolError(code: string): void;
  /** The journal could not do its work. */
  journalFault(fault: JournalFault): void;
  /** A request to resize a pod ended, wherever it came from. */
  resize(state: ResizeEnd, direction: ResizeDirection): void;
  /** A resize of the resize API, or of annotations, entered a state (KEP-1287). */
  resizeState(state: string): void;
  /** A step was carried out. */
  step(kind: string, milliseconds: number): void;
  /** Steps were taken back after a later one had failed. */
  undo(outcome: UndoOutcome): void;
  /** A resize was met that an earlier shim, or an undo that failed, had left half done. */
  recovery(outcome: RecoveryOutcome): void;
  /** Memory was reclaimed for a lower limit, or could not be. */
  reclaim(outcome: ReclaimOutcome, milliseconds: number): void;
  /** The OOM killer was at work while a limit was lowered. */
  oomKills(count: number): void;
  /** systemd has asked to be told how we are, and could not be. */
  notifyFault(): void;
  /** A volume was given another size, or was to be: also where an earlier remount is taken back. */
  remount(direction: RemountDirection, result: RemountResult): void;
  /** Something has come of what kubelet has written down. */
  foresight(event: ForesightEvent): void;
  /** So many bytes were reclaimed for a limit that kubelet is about to lower. */
  foresightReclaimed(bytes: number): void;
}

export type ForesightEvent =
  /** A file of kubelet's, or a part of it, cannot be read. */
  | 'unreadable'
  /** kubelet has admitted a lower memory limit, and more than that is in use: it does not even call. */
  | 'stuck'
  /** It has been carried out since. */
  | 'unstuck'
  /** What is in use cannot be reclaimed, so it waits. */
  | 'deferred'
  /** It still was not carried out when the time was up. */
  | 'given_up';

/** How a call that only passed ended, as its client saw it. */
export type PassedOutcome = 'answered' | 'cancelled' | 'reset' | 'unavailable';

/** How a request to resize ended: done, refused for now, refused. */
export type ResizeEnd = 'Completed' | 'Deferred' | 'Infeasible';

/** Where limits and sizes were to go; `unknown` where a request was refused before the pod was read. */
export type ResizeDirection = 'up' | 'down' | 'both' | 'same' | 'unknown';

export type UndoOutcome = 'undone' | 'failed';

/** `finished`: it had all been done. `gone`: the pod had ended meanwhile. */
export type RecoveryOutcome = 'finished' | 'undone' | 'gone' | 'failed';

export type ReclaimOutcome = 'done' | 'not_reclaimable' | 'timeout' | 'failed';

export type FailOpenReason =
  /** The pod or container is not in the registry, nor does the backend describe it. */
  | 'unknown_pod'
  /** cgroup files could not be read. */
  | 'unreadable_state'
  /** The request could not be decoded. */
  | 'undecodable'
  /** A response could not be amended. */
  | 'amend_failed';

export type RemountDirection = 'grow' | 'shrink';

export type RemountResult =
  | 'done'
  /** It stores more than its new size; nothing was changed, and often nothing was begun. */
  | 'refused'
  | 'failed';

export type JournalFault =
  /** A record cannot be read: torn, of another version, or none. */
  | 'bad_record'
  /** The state folder takes no records: the disk is full, read-only or gone. */
  | 'unavailable';

/** One thing that resizes need. `says` is for people: how it is done, or what stands in the way. */
export interface ReadinessCheck {
  readonly name: string;
  readonly ready: boolean;
  readonly says: string;
  /** Resizes are carried out without it too: it does not count to {@link ReadinessReport.ready}. */
  readonly isOptional?: true;
}

/** Whether resizes can be carried out: when all checks say so. Calls pass all the same. */
export interface ReadinessReport {
  readonly ready: boolean;
  readonly checks: readonly ReadinessCheck[];
}

export const noLog: Log = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
};

export const noCounters: Counters = {
  failOpen: () => undefined,
  interceptedCall: () => undefined,
  passedCall: () => undefined,
  protocolError: () => undefined,
  journalFault: () => undefined,
  resize: () => undefined,
  resizeState: () => undefined,
  step: () => undefined,
  undo: () => undefined,
  recovery: () => undefined,
  reclaim: () => undefined,
  oomKills: () => undefined,
  notifyFault: () => undefined,
  remount: () => undefined,
  foresight: () => undefined,
  foresightReclaimed: () => undefined,
};
