import * as z from 'zod/mini';
import { MiB } from '../../core/index.ts';
import { type Api, parsedResponse, readText } from '../../kubernetes/index.ts';

const nodeSchema = z.object({
  status: z.exactOptional(
    z.object({
      conditions: z.exactOptional(z.array(z.object({ type: z.string(), status: z.string() }))),
    }),
  ),
});

const IDLE_MS = 10_000;
/** A node object includes its list of images and may take hundreds of kilobytes. */
const LONGEST = 8 * MiB;

/** Returns whether a node has the condition Ready. Rejects like {@link Api}. */
export async function isNodeReady(api: Api, name: string, signal: AbortSignal): Promise<boolean> {
  const path = `/api/v1/nodes/${encodeURIComponent(name)}`;
  // From the cache of the API server: ten thousand pods ask.
  const response = await api({ method: 'GET', path, query: { resourceVersion: '0' }, idleMs: IDLE_MS, signal });
  const { status } = parsedResponse(nodeSchema, await readText(response, LONGEST), 'a node');
  return status?.conditions?.some(({ type, status: is }) => type === 'Ready' && is === 'True') ?? false;
}
