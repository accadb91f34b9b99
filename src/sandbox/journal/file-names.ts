/** The names of the journal's files. Pure functions. */
const UID = /^[0-9a-f-]{8,64}$/i;
const RECORD = /^(?:[0-9a-f-]{8,64}|sha256-[0-9a-f]{64})\.json$/i;
const TEMPORARY_END = '.tmp';
const BAD_END = '.bad';

/**
 * Returns the file name of a pod's record. The caller that creates a pod chooses its uid, so only a well-formed uid is
 * used as it is; anything else (`../../etc/x`) is hashed. Names never collide: `s` of `sha256-` is not a hexadecimal
 * digit.
 */
export function recordFile(podUid: string): string {
  if (UID.test(podUid)) return `${podUid}.json`;
  // Uses UTF-16, because UTF-8 encodes all lone surrogates alike. Loads the module here, because no pod of kubelet has
  // such a uid.
  const { createHash } = process.getBuiltinModule('node:crypto');
  return `sha256-${createHash('sha256').update(podUid, 'utf16le').digest('hex')}.json`;
}

/** The temporary file that a record is written to before it is renamed. */
export const temporaryFile = (record: string): string => `${record}${TEMPORARY_END}`;

/** The file that an unreadable record is moved to. */
export const badFile = (record: string): string => `${record}${BAD_END}`;

/** A file of the journal, and the record that it belongs to. */
export interface KnownFile {
  readonly kind: 'record' | 'temporary' | 'bad';
  readonly record: string;
}

/** Classifies a file of the state folder. Returns undefined for a file that is not the journal's: it is ignored. */
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
