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

/** Events that are counted. Names follow the Prometheus conventions; labels are from small closed sets. */
export interface Counters {
  /** A request that was meant to be acted on went on as it came, because acting was not possible. */
  failOpen(reason: FailOpenReason): void;
  /** An intercepted call ended. */
  interceptedCall(method: string, code: number, milliseconds: number): void;
  /** A connection ended because a peer broke HTTP/2. */
  protocolError(code: string): void;
  /** The journal could not do its work. */
  journalFault(fault: JournalFault): void;
}

export type FailOpenReason =
  /** The pod or container is not in the registry, nor does the backend describe it. */
  | 'unknown_pod'
  /** cgroup files could not be read. */
  | 'unreadable_state'
  /** The request could not be decoded. */
  | 'undecodable'
  /** A response could not be amended. */
  | 'amend_failed';

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
  protocolError: () => undefined,
  journalFault: () => undefined,
};

export { oncePerKey } from './once.ts';
