import type { Readable } from 'node:stream';
import * as z from 'zod/mini';
import { MiB } from '../../core/index.ts';
import type { Api } from '../client/api.ts';
import { ApiRefusal, ApiUnreached } from '../client/errors.ts';
import { type Piece, readItems, readLines } from '../client/pieces.ts';
import { type ApiPod, type ApiPodIdentity, podOf, podSchema } from './pod.ts';

/** The pods of a node from the API server: `list` once, then `changes` from that version on. */
export interface PodWatch {
  /**
   * Lists all pods of the node. Rejects as {@link Api}, with 410 if a page has expired: list again.
   * @param atLeast a version ('0': any): the API server returns this or a later state from memory; undefined: returns
   * the present state, possibly from etcd
   */
  list(atLeast: string | undefined, signal: AbortSignal): Promise<PodList>;
  /**
   * Resolves when the server accepts the watch, to the changes after `version` until the server ends it. The promise or
   * the iteration rejects with 410 if `version` has expired: list again.
   */
  changes(version: string, signal: AbortSignal): Promise<AsyncIterable<PodChange>>;
}

export interface PodList {
  readonly pods: readonly ApiPod[];
  /** The objects that are too large, as far as their names are known. They are not among the pods. */
  readonly skipped: readonly (ApiPodIdentity | undefined)[];
  readonly version: string;
}

export type PodChange =
  | { readonly kind: 'present' | 'gone'; readonly pod: ApiPod; readonly version: string }
  /** An object that is too large. The names and the version are undefined if they cannot be read. */
  | { readonly kind: 'skipped'; readonly pod: ApiPodIdentity | undefined; readonly version: string | undefined }
  /** There are no further changes up to this version. */
  | { readonly kind: 'bookmark'; readonly version: string };

/**
 * Maximum bytes of a pod. etcd stores at most 1.5 MiB, which JSON may expand up to six times: Go encodes `<`, `>` and
 * `&` in six characters. Larger objects are skipped, so that the author of a pod cannot stop the watch for the others.
 */
export const LONGEST_OBJECT = 12 * MiB;
/**
 * Pods per page of a list from etcd, as in client-go. Only used without a resource version: with a version, the API
 * server would also read etcd, and up to 1.30 once for each page (storage/cacher, shouldDelegateList).
 */
const PAGE = 500;
const LIST_IDLE_MS = 30_000;
/** After this time the server ends a watch and a new watch continues. By then, a hanging connection is detected. */
const WATCH_SECONDS = 300;
const WATCH_IDLE_MS = (WATCH_SECONDS + 30) * 1000;

const listSchema = z.object({
  metadata: z.object({ resourceVersion: z.string(), continue: z.nullish(z.string()) }),
  items: z.nullish(z.array(z.never())),
});
const eventSchema = z.discriminatedUnion('type', [
  z.object({ type: z.enum(['ADDED', 'MODIFIED', 'DELETED']), object: podSchema }),
  z.object({
    type: z.literal('BOOKMARK'),
    object: z.object({ metadata: z.object({ resourceVersion: z.string() }) }),
  }),
  z.object({ type: z.literal('ERROR'), object: z.object({ code: z.number(), message: z._default(z.string(), '') }) }),
]);

/** Returns a list and a watch of the pods of a node. */
export function podWatch(api: Api, nodeName: string): PodWatch {
  const path = '/api/v1/pods';
  const ofNode = { fieldSelector: `spec.nodeName=${nodeName}` };
  return {
    async list(atLeast, signal) {
      const pods: ApiPod[] = [];
      const skipped: (ApiPodIdentity | undefined)[] = [];
      const onItem = ({ text, isTooLong }: Piece): void => {
        if (isTooLong) skipped.push(podStart(text)?.pod);
        else pods.push(podOf(read(podSchema, text), nodeName));
      };
      const extent = atLeast === undefined ? { limit: String(PAGE) } : { resourceVersion: atLeast };
      for (let next: string | undefined; ; ) {
        const query = { ...ofNode, ...extent, ...(next !== undefined && { limit: String(PAGE), continue: next }) };
        const response = await api({ method: 'GET', path, query, idleMs: LIST_IDLE_MS, signal });
        const { metadata } = read(listSchema, await readItems(response, LONGEST_OBJECT, onItem));
        next = metadata.continue ?? '';
        if (next === '') return { pods, skipped, version: metadata.resourceVersion };
      }
    },
    async changes(version, signal) {
      const query = {
        ...ofNode,
        watch: '1',
        allowWatchBookmarks: 'true',
        resourceVersion: version,
        timeoutSeconds: String(WATCH_SECONDS),
      };
      const response = await api({ method: 'GET', path, query, idleMs: WATCH_IDLE_MS, signal });
      return changesIn(response, nodeName);
    },
  };
}

async function* changesIn(response: Readable, nodeName: string): AsyncGenerator<PodChange> {
  for await (const { text, isTooLong } of readLines(response, LONGEST_OBJECT)) {
    const { pod, version } = (isTooLong ? podStart(text) : undefined) ?? {};
    yield isTooLong ? { kind: 'skipped', pod, version } : changeOf(read(eventSchema, text), nodeName);
  }
}

function changeOf(event: z.infer<typeof eventSchema>, nodeName: string): PodChange {
  switch (event.type) {
    case 'ERROR':
      throw new ApiRefusal(event.object.code, event.object.message.slice(0, 300));
    case 'BOOKMARK':
      return { kind: 'bookmark', version: event.object.metadata.resourceVersion };
    case 'DELETED':
    case 'ADDED':
    case 'MODIFIED': {
      const kind = event.type === 'DELETED' ? 'gone' : 'present';
      return { kind, pod: podOf(event.object, nodeName), version: event.object.metadata.resourceVersion };
    }
  }
}

function read<Schema extends z.ZodMiniType>(schema: Schema, text: string): z.infer<Schema> {
  try {
    return schema.parse(JSON.parse(text));
  } catch {
    // The parsers' messages are not passed on, because they quote the response.
    throw new ApiUnreached('the response is not a list or watch of pods');
  }
}

/** The first fields of a pod object. */
export interface PodStart {
  readonly pod: ApiPodIdentity;
  readonly version: string;
}

/**
 * Matches the first fields of an event or a pod, in Go's encoding order. Freely chosen fields, such as labels and
 * annotations, come after them.
 */
const FIRST_FIELDS =
  /^(?:\{"type":"[A-Z]+","object":)?\{(?:"(?:kind|apiVersion)":"[^"\\]*",)*"metadata":\{((?:"(?:name|generateName|namespace|selfLink|uid|resourceVersion)":"[^"\\]*",)+)/;

const fieldsSchema = z.object({
  uid: z.string(),
  namespace: z.string(),
  name: z.string(),
  resourceVersion: z.string(),
});

/** Reads the start of a watch event or list item. Undefined if it is not as the API server encodes it. */
export function podStart(text: string): PodStart | undefined {
  const fields = FIRST_FIELDS.exec(text)?.[1]?.slice(0, -1);
  if (fields === undefined) return undefined;
  const parsed = fieldsSchema.safeParse(JSON.parse(`{${fields}}`));
  if (!parsed.success) return undefined;
  const { resourceVersion, ...pod } = parsed.data;
  return { pod, version: resourceVersion };
}
