import * as z from 'zod/mini';
import { type Api, ApiRefusal, readText } from '../../kubernetes/client/index.ts';

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
const LONGEST = 8 * 1024 * 1024;

/** Reads a node; returns undefined if it does not exist. Rejects like {@link Api}. */
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
