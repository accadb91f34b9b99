import * as z from 'zod/mini';
import { en } from 'zod/locales';
import { type Bytes, bytes } from '../../core/quantities/index.ts';
import type { AskedPod, MemoryRequests } from './request.ts';
import type { Resize } from './resize.ts';
import type { PodIdentity } from '../../sandbox/index.ts';

/**
 * What outlives the shim: resizes that are to be tried again, and what nothing else knows: the requests of memory, and what
 * annotations have asked for. Plain JSON, kept by pod; the journal's owner decides where.
 */
export interface ResizeStore {
  /** Puts these in the place of what was kept for the pod; none: forgets the pod. Rejects when that did not last. */
  persist(podUid: string, records: readonly ResizeRecord[]): Promise<void>;
  /** All that is kept. Records are checked here, and not by the store. */
  restore(): Promise<readonly { readonly podUid: string; readonly records: readonly unknown[] }[]>;
}

/** JSON. What a newer shim has written is kept as it is. */
export type ResizeRecord = KnownRecord | { readonly version: unknown };
export type KnownRecord = DeferredRecord | RequestsRecord | AnnotationsRecord;

export interface DeferredRecord {
  readonly version: 1;
  readonly kind: 'deferred';
  readonly id: string;
  readonly pod: PodIdentity;
  readonly asked: AskedPod;
  readonly timeoutMs: number;
  readonly createdAt: number;
}

export interface RequestsRecord {
  readonly version: 1;
  readonly kind: 'memory-requests';
  readonly pod: PodIdentity;
  readonly memory: MemoryRequests;
}

/** What a pod's annotations in Kubernetes have last asked for, by volume; an empty text: the annotation was taken away. */
export interface AnnotationsRecord {
  readonly version: 1;
  readonly kind: 'annotations';
  readonly pod: PodIdentity;
  readonly volumes: Readonly<Record<string, string>>;
}

const text = z.string().check(z.maxLength(256));
const amounts = z.strictObject({ cpu: text, memory: text });
const resources = z.strictObject({ limits: amounts, requests: amounts });
const pod = z.strictObject({ sandboxId: text, uid: text, namespace: text, name: text });
const size = z.pipe(
  z.int().check(z.nonnegative()),
  z.transform((value: number): Bytes => bytes(value)),
);
const time = z.number().check(z.nonnegative());

const schema = z.discriminatedUnion('kind', [
  z.strictObject({
    version: z.literal(1),
    kind: z.literal('deferred'),
    id: text,
    pod,
    asked: z.strictObject({ pod: resources, containers: z.record(text, resources), volumes: z.record(text, text) }),
    timeoutMs: time,
    createdAt: time,
  }),
  z.strictObject({
    version: z.literal(1),
    kind: z.literal('memory-requests'),
    pod,
    memory: z.strictObject({ pod: z.exactOptional(size), containers: z.record(text, size) }),
  }),
  z.strictObject({ version: z.literal(1), kind: z.literal('annotations'), pod, volumes: z.record(text, text) }),
]);

/** zod's mini variant, which loads in a fraction of the time, has no words of its own. */
const inEnglish = en().localeError;

/** Checks one record. A text says what is wrong with it. */
export function readRecord(record: unknown, podUid: string): KnownRecord | string {
  const parsed = schema.safeParse(record, { error: inEnglish });
  if (!parsed.success) return z.prettifyError(parsed.error);
  const { uid } = parsed.data.pod;
  return uid === podUid ? parsed.data : `pod.uid: ${uid} does not match the pod that the record is stored for`;
}

export function deferredRecord({ id, pod: of, asked, timeoutMs, createdAt }: Resize): DeferredRecord {
  return { version: 1, kind: 'deferred', id, pod: of, asked, timeoutMs, createdAt };
}
