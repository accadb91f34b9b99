/**
 * What the journal says of one pod, and how that is written down. Everything that is read is checked: a file may be
 * half-written, of another version, or not ours.
 */
import * as z from 'zod/mini';
import { en } from 'zod/locales';
import { Code, Reason, ShimError, messageOf } from '../../core/errors/index.ts';
import { type Bytes, type Limit, cpuShares, cpuWeight, microseconds } from '../../core/quantities/index.ts';
import { type AskedVolume, type VolumeRecord, askedVolume, inBytes, label, volumeRecord } from './volume-record.ts';
import type { Step } from '../model/index.ts';

/** The form of the file. A field that comes or goes makes another version; those before are read too. */
export const RECORD_VERSION = 3;
const SECOND_VERSION = 2;
const FIRST_VERSION = 1;

/** The largest record, in bytes: a hundred times what a pod of ten containers takes. */
export const MAX_RECORD_BYTES = 1024 * 1024;

/** What memory.high of a cgroup was before it was lowered. */
export interface PreviousHigh {
  readonly cgroup: string;
  readonly memoryHigh: Limit<Bytes>;
}

/** A transaction that is under way. */
export interface JournalledTransaction {
  readonly id: string;
  /** Milliseconds since 1970. */
  readonly startedAt: number;
  /** All planned steps, in their order. Which of them were carried out, the kernel knows. */
  readonly steps: readonly Step[];
  /** What was asked for volumes, by name, and is kept when it is done. */
  readonly allocated?: Readonly<{ [volume: string]: AskedVolume }>;
  /** A step has failed: those that were carried out are being taken back. */
  readonly undoing: boolean;
  /** cgroups whose memory.high is lowered to reclaim memory, and what it has to become again. Each once. */
  readonly highs: readonly PreviousHigh[];
  /** Undoing failed too, and why: the pod is marked, and mended at its next request or at a start. */
  readonly failed?: string;
}

/** What is kept of one pod. */
export interface PodRecord {
  readonly podUid: string;
  /** The sandbox when this was written. */
  readonly sandboxId: string;
  readonly transaction?: JournalledTransaction;
  /** By volume name, what decides the sizes of those that the pod's own annotations do not speak of. */
  readonly volumes: ReadonlyMap<string, VolumeRecord>;
  /** Deferred requests, opaque here: any JSON values, kept as they are. */
  readonly resizes?: readonly unknown[];
}

/** A record as it was read, with the boot of the machine in which it was written. */
export interface WrittenRecord extends PodRecord {
  readonly version: typeof RECORD_VERSION;
  readonly bootId: string;
}

/** zod's mini variant, which loads in a fraction of the time, has no words of its own. */
const inEnglish = en().localeError;

const amount = z.int().check(z.nonnegative());
const amountAs = <Value>(of: (value: number) => Value) =>
  z.pipe(
    amount,
    z.transform((value: number) => of(value)),
  );
const inMicroseconds = amountAs(microseconds);
const memoryLimit = z.union([z.literal('max'), inBytes]);
const cpuMax = z.strictObject({ quota: z.union([z.literal('max'), inMicroseconds]), period: inMicroseconds });
const changeOf = <Value extends z.ZodMiniType>(value: Value) => z.strictObject({ from: value, to: value });

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
  container: z.strictObject({
    kind: z.literal('container'),
    id: z.string(),
    memory: z.exactOptional(changeOf(memoryLimit)),
    cpu: z.exactOptional(changeOf(cpuMax)),
    shares: z.exactOptional(changeOf(amountAs(cpuShares))),
  }),
  runtime: z.strictObject({ kind: z.literal('runtime') }),
} satisfies { [Kind in Step['kind']]: z.ZodMiniType<Extract<Step, { kind: Kind }>> };

const step: z.ZodMiniType<Step> = z.discriminatedUnion('kind', [
  steps.volume,
  steps['pod-memory'],
  steps['pod-cpu'],
  steps['pod-weight'],
  steps['pod-unified'],
  steps.container,
  steps.runtime,
]);

const transaction: z.ZodMiniType<JournalledTransaction> = z.strictObject({
  id: z.string(),
  startedAt: amount,
  steps: z.array(step),
  allocated: z.exactOptional(z.record(label, askedVolume)),
  undoing: z.boolean(),
  highs: z.array(z.strictObject({ cgroup: z.string(), memoryHigh: memoryLimit })),
  failed: z.exactOptional(z.string()),
});

const record = z.strictObject({
  version: z.literal(RECORD_VERSION),
  bootId: z.string(),
  podUid: z.string(),
  sandboxId: z.string(),
  transaction: z.exactOptional(transaction),
  volumes: z.pipe(
    z.record(label, volumeRecord),
    z.transform((volumes: Readonly<Record<string, VolumeRecord>>) => new Map(Object.entries(volumes))),
  ),
  resizes: z.exactOptional(z.array(z.unknown())),
});

/**
 * The content of a pod's file. Throws INVALID_VALUE when it has more than {@link MAX_RECORD_BYTES}, INTERNAL when it could
 * not be read again as it is: such a record would be worth nothing after a crash.
 */
export function encodeRecord(given: PodRecord, bootId: string): Buffer {
  const { podUid, sandboxId, transaction: open, volumes, resizes } = given;
  const form = {
    version: RECORD_VERSION,
    bootId,
    podUid,
    sandboxId,
    transaction: open,
    volumes: Object.fromEntries(volumes),
    resizes,
  };
  const content = Buffer.from(`${JSON.stringify(form)}\n`);
  if (content.length > MAX_RECORD_BYTES) {
    const context = { pod: podUid, asked: String(content.length), found: String(MAX_RECORD_BYTES) };
    const message = `the journal's record of pod ${podUid} would have ${content.length} bytes; it may have ${MAX_RECORD_BYTES}`;
    throw new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_VALUE, message, context);
  }
  try {
    const { volumes: again } = decodeRecord(content);
    // The one name that an object does not keep is `__proto__`.
    if (again.size !== volumes.size) throw new Error('a volume has a name that is none');
  } catch (error) {
    const message = `the journal's record of pod ${podUid} could not be read again: ${messageOf(error)}`;
    throw new ShimError(Code.INTERNAL, Reason.INTERNAL, message, { pod: podUid }, { cause: error });
  }
  return content;
}

/** Reads a pod's file. Throws an Error that says what is wrong with it; without its values, which may be anything. */
export function decodeRecord(content: Buffer): WrittenRecord {
  const form = parse(content);
  const version: unknown = isObject(form) ? form.version : undefined;
  if (typeof version === 'number' && ![FIRST_VERSION, SECOND_VERSION, RECORD_VERSION].includes(version))
    throw new Error(`is of version ${version}; this shim reads versions ${FIRST_VERSION} to ${RECORD_VERSION}`);
  const second = version === FIRST_VERSION ? ofFirstVersion(form) : form;
  const newest = version === FIRST_VERSION || version === SECOND_VERSION ? ofSecondVersion(second) : form;
  const parsed = record.safeParse(newest, { error: inEnglish });
  if (parsed.success) return parsed.data;
  const faults = parsed.error.issues.map(({ path, message }) => `${path.map(String).join('.')}: ${message}`);
  throw new Error(`is no record: ${faults.slice(0, 1).join()}`);
}

/** The first version knew of one cgroup at a time whose memory.high was lowered. */
function ofFirstVersion(form: unknown): unknown {
  if (!isObject(form)) return form;
  const { transaction: open } = form;
  if (!isObject(open)) return form;
  const { high, ...others } = open;
  return { ...form, transaction: { ...others, highs: high === undefined ? [] : [high] } };
}

/** The second had sizes alone of volumes, and of those for which one had been asked. */
function ofSecondVersion(form: unknown): unknown {
  if (!isObject(form)) return form;
  const { volumes, transaction: open } = form;
  const asked = (size: unknown): object => ({ policy: { kind: 'absolute', size }, annotated: false });
  const records = each(volumes, (size) => ({ ...asked(size), source: 'asked' }));
  const others = { ...form, version: RECORD_VERSION, volumes: records };
  if (!isObject(open) || open.allocated === undefined) return others;
  return { ...others, transaction: { ...open, allocated: each(open.allocated, asked) } };
}

/** What is no object stays as it is, to be found by the reader. */
const each = (form: unknown, change: (value: unknown) => object): unknown =>
  isObject(form) ? Object.fromEntries(Object.entries(form).map(([key, value]) => [key, change(value)])) : form;

const isObject = (form: unknown): form is Readonly<Record<string, unknown>> =>
  typeof form === 'object' && form !== null;

function parse(content: Buffer): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(content));
  } catch (error) {
    // The engine's message would quote the content.
    throw new Error('is no JSON, or only a part of it', { cause: error });
  }
}
