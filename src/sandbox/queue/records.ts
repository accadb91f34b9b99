import { en } from 'zod/locales';
import * as z from 'zod/mini';
import { type Bytes, bytes, type Clock, KeyedLock, type Log, messageOf } from '../../core/index.ts';
import type { MemoryRequests } from '../plan/resize-request.ts';
import type { PodIdentity } from '../pods/pod-identity.ts';
import type { RequestedPod } from './request.ts';
import type { Resize } from './resize-table.ts';

/**
 * Stores the data that survives a restart of the shim: deferred resizes, memory requests, and requests of annotations.
 * The records are plain JSON, stored by pod.
 */
export interface ResizeStore {
  /** Replaces the records of a pod; an empty list removes them. Rejects when the records are not durable. */
  persist(podUid: string, records: readonly ResizeRecord[]): Promise<void>;
  /** Returns all stored records. The store does not validate them: {@link readRecord} does. */
  restore(): Promise<readonly { readonly podUid: string; readonly records: readonly unknown[] }[]>;
}

/** A JSON record. Records of a newer version of the shim are stored unchanged. */
export type ResizeRecord = KnownRecord | { readonly version: unknown };
export type KnownRecord = DeferredRecord | RequestsRecord | AnnotationsRecord;

export interface DeferredRecord {
  readonly version: 1;
  readonly kind: 'deferred';
  readonly id: string;
  readonly pod: PodIdentity;
  readonly asked: RequestedPod;
  readonly timeoutMs: number;
  readonly createdAt: number;
}

export interface RequestsRecord {
  readonly version: 1;
  readonly kind: 'memory-requests';
  readonly pod: PodIdentity;
  readonly memory: MemoryRequests;
  /** The requests that kubelet had admitted when the record was written. Absent: not known. */
  readonly kubelet?: MemoryRequests;
}

/** The last request in a pod's annotations, by volume. An empty string: the annotation was removed. */
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
const memoryRequests = z.strictObject({ pod: z.exactOptional(size), containers: z.record(text, size) });
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
    memory: memoryRequests,
    kubelet: z.exactOptional(memoryRequests),
  }),
  z.strictObject({ version: z.literal(1), kind: z.literal('annotations'), pod, volumes: z.record(text, text) }),
]);

/** zod/mini loads much faster than zod, but contains no messages. */
const inEnglish = en().localeError;

/** Validates one record. Returns the record, or a string that says what is wrong with it. */
export function readRecord(record: unknown, podUid: string): KnownRecord | string {
  const parsed = schema.safeParse(record, { error: inEnglish });
  if (!parsed.success) return z.prettifyError(parsed.error);
  const { uid } = parsed.data.pod;
  return uid === podUid ? parsed.data : `pod.uid: ${uid} does not match the pod that the record is stored for`;
}

/** Returns the record of a deferred resize, which a later process continues. */
export function deferredRecord({ id, pod: of, asked, timeoutMs, createdAt }: Resize): DeferredRecord {
  return { version: 1, kind: 'deferred', id, pod: of, asked, timeoutMs, createdAt };
}

/** Interval of retries after a failed write, e.g. on a full disk. */
const RETRY_MS = 30_000;

/** Writes the stored records of pods. Writes of a pod run in sequence, each with the records at its time. */
export class RecordWriter {
  readonly #store: ResizeStore;
  readonly #recordsOf: (podUid: string) => readonly ResizeRecord[];
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #lock = new KeyedLock();
  /** Cancels the retry, for each pod whose last write failed. */
  readonly #retries = new Map<string, () => void>();

  constructor(parts: {
    store: ResizeStore;
    recordsOf: (podUid: string) => readonly ResizeRecord[];
    clock: Clock;
    log: Log;
  }) {
    this.#store = parts.store;
    this.#recordsOf = parts.recordsOf;
    this.#clock = parts.clock;
    this.#log = parts.log;
  }

  /** Writes a pod's records before an operation that must not start without them. Rejects as the store does. */
  save(podUid: string): Promise<void> {
    return this.#lock.run(podUid, async () => {
      this.#stopRetry(podUid);
      await this.#store.persist(podUid, this.#recordsOf(podUid));
    });
  }

  /** Writes a pod's records after an operation, and retries until that succeeds. Never rejects. */
  async store(podUid: string): Promise<void> {
    try {
      await this.save(podUid);
    } catch (error) {
      this.#log.error({ uid: podUid, error: messageOf(error) }, 'storing resize records of a pod failed; will retry');
      this.#stopRetry(podUid);
      this.#retries.set(
        podUid,
        this.#clock.after(RETRY_MS, () => void this.store(podUid)),
      );
    }
  }

  close(): void {
    for (const podUid of [...this.#retries.keys()]) this.#stopRetry(podUid);
  }

  #stopRetry(podUid: string): void {
    this.#retries.get(podUid)?.();
    this.#retries.delete(podUid);
  }
}
