import * as z from 'zod/mini';
import { type Api, ApiRefusal, readText } from '../../kubernetes/client/index.ts';

/** A node as the API server has it: of it, what the installer goes by. */
export interface ClusterNode {
  readonly labels: Readonly<Record<string, string>>;
  /** Being removed from the cluster. */
  readonly isEnding: boolean;
  readonly isReady: boolean;
  /** When its kubelet last wrote down how it is, in milliseconds since the epoch by the node's own clock; 0: never. */
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
/** A node with the images that it has may be hundreds of kilobytes. */
const LONGEST = 8 * 1024 * 1024;

/** A node of the cluster; undefined: there is none of that name. Rejects as {@link Api} does. */
export async function readNode(api: Api, name: string, signal: AbortSignal): Promise<ClusterNode | undefined> {
  try {
    const path = `/api/v1/nodes/${encodeURIComponent(name)}`;
    const response = await api({ method: 'GET', path, idleMs: IDLE_MS, signal });
    return nodeOf(nodeSchema.parse(JSON.parse(await readText(response, LONGEST))));
  } catch (error) {
    if (error instanceof ApiRefusal && error.status === 404) return undefined;
    throw error;
  }
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
