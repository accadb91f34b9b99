import type { Readable } from 'node:stream';
import * as z from 'zod/mini';
import { type ApiPod, podOf, podSchema } from './pod.ts';
import { type Api, ApiRefusal, ApiUnreached, readLines, readText } from '../client/index.ts';

/** The pods of a node from the API server: `list` once, then `changes` from that version on. */
export interface PodWatch {
  /** Lists all pods of the node, in pages. Rejects as {@link Api}, with 410 if a page has expired: list again. */
  list(signal: AbortSignal): Promise<{ readonly pods: readonly ApiPod[]; readonly version: string }>;
  /**
   * Resolves when the server accepts the watch, to the changes after `version` until the server ends it. The promise or the
   * iteration rejects with 410 if `version` has expired: list again.
   */
  changes(version: string, signal: AbortSignal): Promise<AsyncIterable<PodChange>>;
}

export type PodChange =
  | { readonly kind: 'present' | 'gone'; readonly pod: ApiPod; readonly version: string }
  /** Nothing new up to here. */
  | { readonly kind: 'bookmark'; readonly version: string };

/** Pods per page. etcd stores at most 1.5 MiB per object, and JSON may take twice that: a page of the largest pods still fits. */
const PAGE = 10;
const LONGEST_PAGE = 32 * 1024 * 1024;
const LONGEST_LINE = 4 * 1024 * 1024;
const LIST_IDLE_MS = 30_000;
/** After this the server ends a watch, and another one goes on from there: a connection that hangs is found out by then. */
const WATCH_SECONDS = 300;
const WATCH_IDLE_MS = (WATCH_SECONDS + 30) * 1000;

const listSchema = z.object({
  metadata: z.object({ resourceVersion: z.string(), continue: z.nullish(z.string()) }),
  items: z.nullish(z.array(podSchema)),
});
const eventSchema = z.discriminatedUnion('type', [
  z.object({ type: z.enum(['ADDED', 'MODIFIED', 'DELETED']), object: podSchema }),
  z.object({
    type: z.literal('BOOKMARK'),
    object: z.object({ metadata: z.object({ resourceVersion: z.string() }) }),
  }),
  z.object({ type: z.literal('ERROR'), object: z.object({ code: z.number(), message: z._default(z.string(), '') }) }),
]);

export function podWatch(api: Api, nodeName: string): PodWatch {
  const path = '/api/v1/pods';
  const ofNode = { fieldSelector: `spec.nodeName=${nodeName}` };
  return {
    async list(signal) {
      const pods: ApiPod[] = [];
      for (let next: string | undefined; ; ) {
        const query = { ...ofNode, limit: String(PAGE), ...(next !== undefined && { continue: next }) };
        const response = await api({ method: 'GET', path, query, idleMs: LIST_IDLE_MS, signal });
        const { metadata, items } = read(listSchema, await readText(response, LONGEST_PAGE));
        for (const item of items ?? []) pods.push(podOf(item, nodeName));
        next = metadata.continue ?? '';
        if (next === '') return { pods, version: metadata.resourceVersion };
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
  for await (const line of readLines(response, LONGEST_LINE)) yield changeOf(read(eventSchema, line), nodeName);
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
    // Neither error's message is passed on: they quote.
    throw new ApiUnreached('the response is not a list or watch of pods');
  }
}
