import { randomBytes } from 'node:crypto';

/** What is told in the Kubernetes API, of whom, and by whom. */
export interface Told {
  readonly namespace: string;
  /** With which the event's own name begins: that of whom it is about. */
  readonly name: string;
  readonly regarding: object;
  readonly reporter: string;
  /** Which of several reporters. */
  readonly instance: string;
  readonly action: string;
  readonly type: 'Normal' | 'Warning';
  readonly reason: string;
  readonly note: string;
  /** Milliseconds since the epoch. */
  readonly at: number;
}

/** The API server takes no more (pkg/apis/core/validation, NoteLengthLimit and its neighbours). */
const LONGEST_NOTE = 1024;
const LONGEST_INSTANCE = 128;
/** Of 253 that a name may have, less a point and what makes it unique. */
const LONGEST_PREFIX = 220;

/**
 * As events.k8s.io/v1 has it: the API for what is written since 1.19, which takes a time of microseconds and says who
 * reports. Each is created once and never changed, so the right to create is all that this needs.
 */
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
}: Told): object {
  const prefix = name.slice(0, LONGEST_PREFIX).replace(/[^a-z0-9]+$/, '');
  return {
    apiVersion: 'events.k8s.io/v1',
    kind: 'Event',
    metadata: { namespace, name: `${prefix}.${randomBytes(8).toString('hex')}` },
    eventTime: microTime(at),
    reportingController: reporter,
    reportingInstance: instance.slice(0, LONGEST_INSTANCE),
    ...{ action, type, reason, regarding },
    note: cut(note),
  };
}

/** A time as metav1.MicroTime has it. @param at in milliseconds since the epoch */
export const microTime = (at: number): string => `${new Date(at).toISOString().slice(0, -1)}000Z`;

/** To so many bytes of UTF-8: that is what the server counts. */
function cut(note: string): string {
  const bytes = Buffer.from(note);
  if (bytes.length <= LONGEST_NOTE) return note;
  return `${bytes
    .subarray(0, LONGEST_NOTE - 6)
    .toString()
    .replace(/\uFFFD+$/, '')}...`;
}
