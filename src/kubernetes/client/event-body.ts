import { randomBytes } from 'node:crypto';

/** The content of an event. */
export interface EventContent {
  readonly namespace: string;
  /** Name of the object, used as prefix of the event name. */
  readonly name: string;
  readonly regarding: object;
  readonly reporter: string;
  /** Identifies one of several reporters. */
  readonly instance: string;
  readonly action: string;
  readonly type: 'Normal' | 'Warning';
  readonly reason: string;
  readonly note: string;
  /** Milliseconds since the epoch. */
  readonly at: number;
}

/** Limits of the API server (pkg/apis/core/validation, NoteLengthLimit and others). */
const LONGEST_NOTE = 1024;
const LONGEST_INSTANCE = 128;
/** A name has at most 253 characters; this leaves room for the unique suffix. */
const LONGEST_PREFIX = 220;

/** Returns an events.k8s.io/v1 event (Kubernetes 1.19 or later). Never updated: create permission is enough. */
export function eventOf({
  namespace,
  name,
  regarding,
  reporter,
  instance,
  action,
  type,
  reason,
  note,
  at,
}: EventContent): object {
  const prefix = name.slice(0, LONGEST_PREFIX).replace(/[^a-z0-9]+$/, '');
  return {
    apiVersion: 'events.k8s.io/v1',
    kind: 'Event',
    metadata: { namespace, name: `${prefix}.${randomBytes(8).toString('hex')}` },
    eventTime: microTime(at),
    reportingController: reporter,
    reportingInstance: instance.slice(0, LONGEST_INSTANCE),
    action,
    type,
    reason,
    regarding,
    note: cut(note),
  };
}

/** Formats a metav1.MicroTime. @param at in milliseconds since the epoch */
const microTime = (at: number): string => `${new Date(at).toISOString().slice(0, -1)}000Z`;

/** Truncates to the limit in bytes of UTF-8, as the server counts. */
function cut(note: string): string {
  const bytes = Buffer.from(note);
  if (bytes.length <= LONGEST_NOTE) return note;
  return `${bytes
    .subarray(0, LONGEST_NOTE - 6)
    .toString()
    .replace(/\uFFFD+$/, '')}...`;
}
