/** The names of the journal's files. Pure. */
import { createHash } from 'node:crypto';

const UID = /^[0-9a-f-]{8,64}$/i;
const RECORD = /^(?:[0-9a-f-]{8,64}|sha256-[0-9a-f]{64})\.json$/i;
const TEMPORARY_END = '.tmp';
const BAD_END = '.bad';

/**
 * The file of a pod. A uid comes from whoever made the pod, so only what looks like one is a name by itself; anything
 * else (`../../etc/x`) is hashed, and no two pods share a name: `s` is no hexadecimal digit.
 */
export function recordFile(podUid: string): string {
  if (UID.test(podUid)) return `${podUid}.json`;
  // Not of UTF-8, in which all lone surrogates are alike.
  return `sha256-${createHash('sha256').update(podUid, 'utf16le').digest('hex')}.json`;
}

/** Where a record is written before it takes its place. */
export const temporaryFile = (record: string): string => `${record}${TEMPORARY_END}`;

/** Where a record goes that cannot be read. */
export const badFile = (record: string): string => `${record}${BAD_END}`;

/** What a file of the state folder is to the journal, and the record that it belongs to. */
export interface KnownFile {
  readonly kind: 'record' | 'temporary' | 'bad';
  readonly record: string;
}

/** Undefined for files that are not the journal's: they are left alone. */
export function knownFile(name: string): KnownFile | undefined {
  if (RECORD.test(name)) return { kind: 'record', record: name };
  for (const [kind, end] of [
    ['temporary', TEMPORARY_END],
    ['bad', BAD_END],
  ] as const) {
    const record = name.slice(0, -end.length);
    if (name.endsWith(end) && RECORD.test(record)) return { kind, record };
  }
  return undefined;
}
