/**
 * The journal's record of one pod, and its file format. Everything that is read is validated: a file may be truncated,
 * of another version, or not written by the shim.
 */

import { en } from 'zod/locales';
import * as z from 'zod/mini';
import type { PreviousHigh } from '../../cgroups/index.ts';
import {
  type Bytes,
  bytes,
  Code,
  cpuShares,
  cpuWeight,
  MiB,
  messageOf,
  microseconds,
  Reason,
  ShimError,
} from '../../core/index.ts';
import type { VolumePolicy } from '../../tmpfs/index.ts';
import type { AdmittedRecord } from '../plan/resize-request.ts';
import type { Step } from '../plan/step.ts';

/** The journal's record of one volume: its size policy, the source of the policy, and the last known mount. */

export interface VolumeRecord {
  readonly policy: VolumePolicy;
  /**
   * The source of the policy: `seen`, the mount when the shim first saw the volume; `asked`, a request or an annotation
   * at run time; `found`, a remount by another program.
   */
  readonly source: 'seen' | 'asked' | 'found';
  /** Whether an annotation added at run time sets the size. A remount by another program then keeps the policy. */
  readonly annotated: boolean;
  /** Absent until the shim has seen the volume mounted, and after a reboot. */
  readonly mount?: VolumeMount;
  /** Largest size of a mount by kubelet: the volume's size limit is no smaller. Absent in records of 0.1.0. */
  readonly mounted?: Bytes;
}

/** The last known mount of a volume. */
export interface VolumeMount {
  /** The file system's device, `major:minor`. A new mount usually has a different one. */
  readonly device: string;
  readonly size: Bytes;
}

/** The volume policy that a request asks for. */
export type RequestedVolume = Pick<VolumeRecord, 'policy' | 'annotated'>;

const amount = z.int().check(z.nonnegative());
const inBytes = z.pipe(
  amount,
  z.transform((value: number) => bytes(value)),
);

/** The name of a volume or a container in Kubernetes: a DNS label (RFC 1123). */
const label = z.string().check(z.regex(/^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$/));

const policies = {
  absolute: z.strictObject({ kind: z.literal('absolute'), size: inBytes }),
  share: z.strictObject({ kind: z.literal('share'), hundredths: amount }),
  'container-share': z.strictObject({ kind: z.literal('container-share'), hundredths: amount, container: label }),
  follow: z.strictObject({ kind: z.literal('follow') }),
  fixed: z.strictObject({ kind: z.literal('fixed') }),
} satisfies { [Kind in VolumePolicy['kind']]: z.ZodMiniType<Extract<VolumePolicy, { kind: Kind }>> };

const policy: z.ZodMiniType<VolumePolicy> = z.discriminatedUnion('kind', [
  policies.absolute,
  policies.share,
  policies['container-share'],
  policies.follow,
  policies.fixed,
]);

const mount = z.strictObject({ device: z.string().check(z.regex(/^\d{1,10}:\d{1,10}$/)), size: inBytes });

const requestedVolume: z.ZodMiniType<RequestedVolume> = z.strictObject({ policy, annotated: z.boolean() });

const volumeRecord: z.ZodMiniType<VolumeRecord> = z.strictObject({
  policy,
  source: z.enum(['seen', 'asked', 'found']),
  annotated: z.boolean(),
  mount: z.exactOptional(mount),
  mounted: z.exactOptional(inBytes),
});

/**
 * The version of the file format. Adding or removing a field changes the version. Version 3, written by 0.1.0, is still
 * read: it lacks the fields for memory.high's mark, for other settings of containers and for holds.
 */
export const RECORD_VERSION = 4;
const OLDEST_VERSION = 3;

/** Maximum size of a record in bytes: a hundred times the record of a pod with ten containers. */
export const MAX_RECORD_BYTES = MiB;

/** A transaction that has not ended. */
export interface JournalledTransaction {
  readonly id: string;
  /** Milliseconds since 1970. */
  readonly startedAt: number;
  /** All planned steps in order. The journal does not record which of them are applied: recovery reads the kernel. */
  readonly steps: readonly Step[];
  /** The requested volume policies by volume name, which apply once the transaction is done. */
  readonly allocated?: Readonly<{ [volume: string]: RequestedVolume }>;
  /** A step failed, and the applied steps are being rolled back. */
  readonly undoing: boolean;
  /** The cgroups whose memory.high is lowered to reclaim memory, each once, with the value to restore. */
  readonly highs: readonly PreviousHigh[];
  /** Why the rollback failed. The pod is recovered in the background, at its next request or at the next start. */
  readonly failed?: string;
}

/** The record of one pod. */
export interface PodRecord {
  readonly podUid: string;
  /** The pod's sandbox at the time of writing. */
  readonly sandboxId: string;
  readonly transaction?: JournalledTransaction;
  /**
   * The cgroups whose memory.high holds the usage below a limit that kubelet is about to lower, each once, with the
   * value to restore. Never empty.
   */
  readonly holds?: readonly PreviousHigh[];
  /** The volumes whose size is not set by an annotation from the pod's creation, by volume name. */
  readonly volumes: ReadonlyMap<string, VolumeRecord>;
  /** Deferred requests: opaque JSON values, stored as they are. */
  readonly resizes?: readonly unknown[];
  /** The requests that a ResizePod has set. Not valid after a reboot. */
  readonly admitted?: AdmittedRecord;
}

/** A record as read from its file, with the id of the boot in which it was written. */
export interface WrittenRecord extends PodRecord {
  readonly version: typeof RECORD_VERSION;
  readonly bootId: string;
}

/** zod/mini loads much faster than zod, but contains no messages. */
const inEnglish = en().localeError;

const amountAs = <Value>(of: (value: number) => Value) =>
  z.pipe(
    amount,
    z.transform((value: number) => of(value)),
  );
const inMicroseconds = amountAs(microseconds);
const memoryLimit = z.union([z.literal('max'), inBytes]);
const cpuMax = z.strictObject({ quota: z.union([z.literal('max'), inMicroseconds]), period: inMicroseconds });
const changeOf = <Value extends z.ZodMiniType>(value: Value) => z.strictObject({ from: value, to: value });

/** The name of a cgroup file. Rejects paths and names of properties that every object has. */
const settingName = z.string().check(z.regex(/^[a-z_]+\.[a-z0-9_.]+$/i));

const steps = {
  volume: z.strictObject({ kind: z.literal('volume'), volume: z.string(), from: inBytes, to: inBytes }),
  'pod-memory': z.strictObject({ kind: z.literal('pod-memory'), from: memoryLimit, to: memoryLimit }),
  'pod-cpu': z.strictObject({ kind: z.literal('pod-cpu'), from: cpuMax, to: cpuMax }),
  'pod-weight': z.strictObject({
    kind: z.literal('pod-weight'),
    from: amountAs(cpuWeight),
    to: amountAs(cpuWeight),
  }),
  'pod-unified': z.strictObject({ kind: z.literal('pod-unified'), key: z.string(), from: z.string(), to: z.string() }),
  burst: z.strictObject({
    kind: z.literal('burst'),
    id: z.exactOptional(z.string()),
    from: inMicroseconds,
    to: inMicroseconds,
  }),
  container: z.strictObject({
    kind: z.literal('container'),
    id: z.string(),
    memory: z.exactOptional(changeOf(memoryLimit)),
    cpu: z.exactOptional(changeOf(cpuMax)),
    shares: z.exactOptional(changeOf(amountAs(cpuShares))),
    swap: z.exactOptional(changeOf(memoryLimit)),
    settings: z.exactOptional(z.record(settingName, changeOf(z.string()))),
  }),
  runtime: z.strictObject({ kind: z.literal('runtime') }),
} satisfies { [Kind in Step['kind']]: z.ZodMiniType<Extract<Step, { kind: Kind }>> };

const step: z.ZodMiniType<Step> = z.discriminatedUnion('kind', [
  steps.volume,
  steps['pod-memory'],
  steps['pod-cpu'],
  steps['pod-weight'],
  steps['pod-unified'],
  steps.burst,
  steps.container,
  steps.runtime,
]);

const high = z.strictObject({
  cgroup: z.string(),
  memoryHigh: memoryLimit,
  // Written by 0.1.0.
  isUnmarked: z.exactOptional(z.literal(true)),
});

const transaction: z.ZodMiniType<JournalledTransaction> = z.strictObject({
  id: z.string(),
  startedAt: amount,
  steps: z.array(step),
  allocated: z.exactOptional(z.record(label, requestedVolume)),
  undoing: z.boolean(),
  highs: z.array(high),
  failed: z.exactOptional(z.string()),
});

const requestsOfPod = { memory: inBytes, milliCpu: amount, kubelet: z.string() };

/** In the file, an entry of `resizes`: a shim that does not know it leaves it unchanged. */
const admittedEntry = z.strictObject({
  version: z.literal(1),
  kind: z.literal('admitted'),
  ...requestsOfPod,
  before: z.exactOptional(z.nullable(z.strictObject(requestsOfPod))),
});

const record = z.strictObject({
  version: z.literal(RECORD_VERSION),
  bootId: z.string(),
  podUid: z.string(),
  sandboxId: z.string(),
  transaction: z.exactOptional(transaction),
  holds: z.exactOptional(z.array(high).check(z.minLength(1))),
  volumes: z.pipe(
    z.record(label, volumeRecord),
    z.transform((volumes: Readonly<Record<string, VolumeRecord>>) => new Map(Object.entries(volumes))),
  ),
  resizes: z.exactOptional(z.array(z.unknown())),
});

/**
 * Returns the content of a pod's file. Throws INVALID_VALUE when it is larger than {@link MAX_RECORD_BYTES}, INTERNAL
 * when it cannot be decoded again: such a record would be useless after a crash.
 */
export function encodeRecord(given: PodRecord, bootId: string): Buffer {
  const { podUid, sandboxId, transaction: open, holds, volumes, admitted } = given;
  const { resizes } = given;
  const entry = admitted && { version: 1, kind: 'admitted', ...admitted };
  const form = {
    version: RECORD_VERSION,
    bootId,
    podUid,
    sandboxId,
    transaction: open,
    holds,
    volumes: Object.fromEntries(volumes),
    resizes: entry === undefined ? resizes : [...(resizes ?? []), entry],
  };
  const content = Buffer.from(`${JSON.stringify(form)}\n`);
  if (content.length > MAX_RECORD_BYTES) {
    const context = { pod: podUid, asked: String(content.length), found: String(MAX_RECORD_BYTES) };
    const message = `the journal's record of pod ${podUid} would have ${content.length} bytes: the maximum is ${MAX_RECORD_BYTES}`;
    throw new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_VALUE, message, context);
  }
  try {
    const { volumes: again } = decodeRecord(content);
    // Assigning to the key `__proto__` of an object adds no property.
    if (again.size !== volumes.size) throw new Error('a volume has an invalid name');
  } catch (error) {
    const message = `the journal's record of pod ${podUid} cannot be read back: ${messageOf(error)}`;
    throw new ShimError(Code.INTERNAL, Reason.INTERNAL, message, { pod: podUid }, { cause: error });
  }
  return content;
}

/** The error for a record of a newer shim, which may read it again after a downgrade and an upgrade. */
export class NewerRecord extends Error {}

/**
 * Reads a pod's file. Throws an Error that names the fault but quotes no value, since the content may be anything; a
 * {@link NewerRecord} for a newer version.
 */
export function decodeRecord(content: Buffer): WrittenRecord {
  const form = parse(content);
  const version: unknown = isObject(form) ? form.version : undefined;
  if (typeof version === 'number' && (version < OLDEST_VERSION || version > RECORD_VERSION)) {
    const why = `has version ${version}: this shim reads versions ${OLDEST_VERSION} to ${RECORD_VERSION}`;
    throw version > RECORD_VERSION ? new NewerRecord(why) : new Error(why);
  }
  const isOld = version === OLDEST_VERSION;
  const parsed = record.safeParse(isOld ? { ...(form as object), version: RECORD_VERSION } : form, {
    error: inEnglish,
  });
  if (parsed.success) {
    const read = withAdmitted(parsed.data);
    return isOld ? withUnmarkedHighs(read) : read;
  }
  const faults = parsed.error.issues.map(({ path, message }) => `${path.map(String).join('.')}: ${message}`);
  throw new Error(`is not a journal record: ${faults.slice(0, 1).join()}`);
}

/** Takes the entry of the admitted requests out of the other entries. */
function withAdmitted(given: WrittenRecord): WrittenRecord {
  const { resizes = [], ...read } = given;
  const found = resizes.map((entry) => admittedEntry.safeParse(entry));
  const others = resizes.filter((_, index) => found[index]?.success !== true);
  const last = found.findLast(({ success }) => success)?.data;
  if (last === undefined) return given;
  return {
    ...read,
    ...(others.length > 0 && { resizes: others }),
    admitted: admittedOf(last),
  };
}

const admittedOf = ({ memory, milliCpu, kubelet, before }: z.infer<typeof admittedEntry>): AdmittedRecord => ({
  ...{ memory, milliCpu, kubelet },
  ...(before !== undefined && { before }),
});

function withUnmarkedHighs(read: WrittenRecord): WrittenRecord {
  const { transaction: open } = read;
  if (open === undefined) return read;
  const highs = open.highs.map((previous): PreviousHigh => ({ ...previous, isUnmarked: true }));
  return { ...read, transaction: { ...open, highs } };
}

const isObject = (form: unknown): form is Readonly<Record<string, unknown>> =>
  typeof form === 'object' && form !== null;

function parse(content: Buffer): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(content));
  } catch (error) {
    // The engine's own message would quote the content.
    throw new Error('is not valid JSON, or is truncated', { cause: error });
  }
}
