/**
 * What the journal says of one pod, and how that is written down. Everything that is read is checked: a file may be
 * half-written, of another version, or not ours.
 */
import * as z from 'zod';
import { Code, Reason, ShimError, messageOf } from '../../errors/index.ts';
import { type Bytes, type Limit, bytes, cpuShares, cpuWeight, microseconds } from '../../units/index.ts';
import type { Step } from '../state.ts';

/** The form of the file. A field that comes or goes makes another version. */
export const RECORD_VERSION = 1;

/** The largest record, in bytes: a hundred times what a pod of ten containers takes. */
export const MAX_RECORD_BYTES = 1024 * 1024;

/** A transaction that is under way. */
export interface JournalledTransaction {
  readonly id: string;
  /** Milliseconds since 1970. */
  readonly startedAt: number;
  /** All planned steps, in their order. Which of them were carried out, the kernel knows. */
  readonly steps: readonly Step[];
  /** Sizes of volumes, by name, that are kept when it is done. */
  readonly allocated?: Readonly<{ [volume: string]: Bytes }>;
  /** A step has failed: those that were carried out are being taken back. */
  readonly undoing: boolean;
  /** The cgroup whose memory.high was lowered to reclaim memory, and what it has to become again. */
  readonly high?: { readonly cgroup: string; readonly memoryHigh: Limit<Bytes> };
  /** Undoing failed too, and why: the pod is marked, and mended at its next request or at a start. */
  readonly failed?: string;
}

/** What is kept of one pod. */
export interface PodRecord {
  readonly podUid: string;
  /** The sandbox when this was written. */
  readonly sandboxId: string;
  readonly transaction?: JournalledTransaction;
  /** Allocated sizes by volume name. */
  readonly volumes: ReadonlyMap<string, Bytes>;
  /** Deferred requests, opaque here: any JSON values, kept as they are. */
  readonly resizes?: readonly unknown[];
}

/** A record as it was read, with the boot of the machine in which it was written. */
export interface WrittenRecord extends PodRecord {
  readonly version: typeof RECORD_VERSION;
  readonly bootId: string;
}

const amount = z.int().nonnegative();
const inBytes = amount.transform(bytes);
const inMicroseconds = amount.transform(microseconds);
const memoryLimit = z.union([z.literal('max'), inBytes]);
const cpuMax = z.strictObject({ quota: z.union([z.literal('max'), inMicroseconds]), period: inMicroseconds });
const changeOf = <Value extends z.ZodType>(value: Value) => z.strictObject({ from: value, to: value });

const steps = {
  volume: z.strictObject({ kind: z.literal('volume'), volume: z.string(), from: inBytes, to: inBytes }),
  'pod-memory': z.strictObject({ kind: z.literal('pod-memory'), from: memoryLimit, to: memoryLimit }),
  'pod-cpu': z.strictObject({ kind: z.literal('pod-cpu'), from: cpuMax, to: cpuMax }),
  'pod-weight': z.strictObject({
    kind: z.literal('pod-weight'),
    from: amount.transform(cpuWeight),
    to: amount.transform(cpuWeight),
  }),
  'pod-unified': z.strictObject({ kind: z.literal('pod-unified'), key: z.string(), from: z.string(), to: z.string() }),
  container: z.strictObject({
    kind: z.literal('container'),
    id: z.string(),
    memory: changeOf(memoryLimit).exactOptional(),
    cpu: changeOf(cpuMax).exactOptional(),
    shares: changeOf(amount.transform(cpuShares)).exactOptional(),
  }),
  runtime: z.strictObject({ kind: z.literal('runtime') }),
} satisfies { [Kind in Step['kind']]: z.ZodType<Extract<Step, { kind: Kind }>> };

const step: z.ZodType<Step> = z.discriminatedUnion('kind', [
  steps.volume,
  steps['pod-memory'],
  steps['pod-cpu'],
  steps['pod-weight'],
  steps['pod-unified'],
  steps.container,
  steps.runtime,
]);

/** As Kubernetes names volumes: a DNS label (RFC 1123). */
const volumeName = z.string().regex(/^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$/);

const transaction: z.ZodType<JournalledTransaction> = z.strictObject({
  id: z.string(),
  startedAt: amount,
  steps: z.array(step),
  allocated: z.record(volumeName, inBytes).exactOptional(),
  undoing: z.boolean(),
  high: z.strictObject({ cgroup: z.string(), memoryHigh: memoryLimit }).exactOptional(),
  failed: z.string().exactOptional(),
});

const record = z.strictObject({
  version: z.literal(RECORD_VERSION),
  bootId: z.string(),
  podUid: z.string(),
  sandboxId: z.string(),
  transaction: transaction.exactOptional(),
  volumes: z.record(volumeName, inBytes).transform((sizes) => new Map(Object.entries(sizes))),
  resizes: z.array(z.unknown()).exactOptional(),
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
  const version: unknown = typeof form === 'object' && form !== null ? Reflect.get(form, 'version') : undefined;
  if (typeof version === 'number' && version !== RECORD_VERSION)
    throw new Error(`is of version ${version}; this shim reads version ${RECORD_VERSION}`);
  const parsed = record.safeParse(form);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new Error(`is no record: ${issue?.path.map(String).join('.') ?? ''}: ${issue?.message ?? ''}`);
}

function parse(content: Buffer): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(content));
  } catch (error) {
    // The engine's message would quote the content.
    throw new Error('is no JSON, or only a part of it', { cause: error });
  }
}
