import * as z from 'zod/mini';
import { MiB } from '../../core/index.ts';
import { type Api, ApiRefusal, parsedResponse, readText } from '../../kubernetes/index.ts';

/** The fields of a node that the installer uses. */
export interface ClusterNode {
  readonly labels: Readonly<Record<string, string>>;
  /** Being removed from the cluster. */
  readonly isEnding: boolean;
  readonly isReady: boolean;
  /** Last heartbeat of the Ready condition in milliseconds since the epoch, by the clock of the node; 0: never. */
  readonly heartbeat: number;
}

const nodeSchema = z.object({
  metadata: z.object({
    labels: z.exactOptional(z.record(z.string(), z.string())),
    deletionTimestamp: z.exactOptional(z.string()),
  }),
  status: z.exactOptional(
    z.object({
      conditions: z.exactOptional(
        z.array(
          z.object({
            type: z.string(),
            status: z.string(),
            lastHeartbeatTime: z.exactOptional(z.nullable(z.string())),
          }),
        ),
      ),
    }),
  ),
});

const IDLE_MS = 10_000;
/** A node object includes its list of images and may take hundreds of kilobytes. */
const LONGEST = 8 * MiB;

/** Reads a node; returns undefined if it does not exist. Rejects like {@link Api}. */
export async function readNode(api: Api, name: string, signal: AbortSignal): Promise<ClusterNode | undefined> {
  try {
    const path = `/api/v1/nodes/${encodeURIComponent(name)}`;
    const response = await api({ method: 'GET', path, idleMs: IDLE_MS, signal });
    return nodeOf(parsedResponse(nodeSchema, await readText(response, LONGEST), 'a node'));
  } catch (error) {
    if (error instanceof ApiRefusal && error.status === 404) return undefined;
    throw error;
  }
}

/** Metadata alone, without the images and conditions of each object. */
const METADATA = 'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1';
const PAGE = 500;
/** Whole pods take some 10 KB each. */
const PODS_PAGE = 200;
const listSchema = z.object({
  metadata: z.object({ continue: z.exactOptional(z.string()) }),
  // PartialObjectMetadataList has null in place of an empty array.
  items: z.nullish(
    z.array(
      z.object({
        metadata: z.object({ name: z.string() }),
        spec: z.exactOptional(z.object({ nodeName: z.exactOptional(z.string()) })),
      }),
    ),
  ),
});

type Listed = NonNullable<z.infer<typeof listSchema>['items']>;

/** Lists objects with a label in an API folder. Rejects like {@link Api}. @param accept empty: whole objects */
async function listed(
  api: Api,
  request: { readonly path: string; readonly labelSelector: string; readonly limit: number; readonly accept?: string },
  signal: AbortSignal,
): Promise<Listed> {
  const { path, labelSelector, limit, accept } = request;
  const all: Listed = [];
  for (let from = ''; ; ) {
    const query = { labelSelector, limit: String(limit), ...(from !== '' && { continue: from }) };
    const sent = {
      method: 'GET',
      path,
      query,
      idleMs: IDLE_MS,
      signal,
      ...(accept !== undefined && { accept }),
    } as const;
    const { metadata, items } = parsedResponse(listSchema, await readText(await api(sent), LONGEST), 'a list');
    all.push(...(items ?? []));
    from = metadata.continue ?? '';
    if (from === '') return all;
  }
}

/** Returns the names of the objects in a folder of the API that have a label. Rejects like {@link Api}. */
export async function namesOf(api: Api, path: string, labelSelector: string, signal: AbortSignal): Promise<string[]> {
  const items = await listed(api, { path, labelSelector, limit: PAGE, accept: METADATA }, signal);
  return items.map(({ metadata }) => metadata.name);
}

/** Returns the nodes of the pods in a folder of the API that have a label. Rejects like {@link Api}. */
export async function nodesOfPods(
  api: Api,
  path: string,
  labelSelector: string,
  signal: AbortSignal,
): Promise<string[]> {
  const items = await listed(api, { path, labelSelector, limit: PODS_PAGE }, signal);
  return items.flatMap(({ spec }) => (spec?.nodeName === undefined ? [] : [spec.nodeName]));
}

/** Sets a label of a node; undefined removes it. Rejects like {@link Api}. */
export async function labelNode(
  api: Api,
  name: string,
  label: string,
  value: string | undefined,
  signal: AbortSignal,
): Promise<void> {
  const path = `/api/v1/nodes/${encodeURIComponent(name)}`;
  const body = { metadata: { labels: { [label]: value ?? null } } };
  const response = await api({ method: 'PATCH', path, body, idleMs: IDLE_MS, signal });
  // The label is set even if the response cannot be read.
  await readText(response, LONGEST).catch(() => undefined);
}

function nodeOf({ metadata, status }: z.infer<typeof nodeSchema>): ClusterNode {
  const ready = status?.conditions?.find(({ type }) => type === 'Ready');
  const heartbeat = Date.parse(ready?.lastHeartbeatTime ?? '');
  return {
    labels: metadata.labels ?? {},
    isEnding: metadata.deletionTimestamp !== undefined,
    isReady: ready?.status === 'True',
    heartbeat: Number.isNaN(heartbeat) ? 0 : heartbeat,
  };
}
