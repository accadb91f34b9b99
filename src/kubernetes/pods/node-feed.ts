import * as z from 'zod/mini';
import { bytes, type Clock, type Log, MiB, parseMilli, parseQuantity } from '../../core/index.ts';
import type { Amounts, NodeAllocatable } from '../../sandbox/index.ts';
import { type Api, readText } from '../client/api.ts';
import { ApiUnreached, kindOf, wordsOf } from '../client/errors.ts';
import { wait } from './feed.ts';

/** kubelet changes the allocatable only when it restarts, or when the node's size changes. */
const INTERVAL_MS = 300_000;
const RETRY_MS = 60_000;
const IDLE_MS = 30_000;
/** A Node lists its images: 50 with up to 5 names each (kubelet nodeStatusMaxImages). */
const LONGEST = 4 * MiB;

const quantity = z.optional(z.union([z.string(), z.number()]));
const nodeSchema = z.object({
  status: z.object({ allocatable: z.object({ cpu: quantity, memory: quantity }) }),
});

/** The allocatable of this node, as last read. */
export class AllocatableStore implements NodeAllocatable {
  #amounts: Amounts | undefined;

  set(amounts: Amounts): void {
    this.#amounts = amounts;
  }

  amounts(): Amounts | undefined {
    return this.#amounts;
  }
}

export interface NodeFeedOptions {
  readonly api: Api;
  readonly nodeName: string;
  readonly store: AllocatableStore;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Reads the Node every five minutes until aborted. The right to do so is optional: without it the allocatable stays
 * unknown. Logs each change, and a failure once for each kind. Never rejects.
 */
export async function feedNode(
  { api, nodeName, store, clock, log }: NodeFeedOptions,
  signal: AbortSignal,
): Promise<void> {
  let failure: string | undefined;
  while (!signal.aborted) {
    try {
      const amounts = await readAllocatable(api, nodeName, signal);
      const isNew = !isSame(amounts, store.amounts());
      store.set(amounts);
      if (isNew) log.info({ node: nodeName, ...amounts }, 'allocatable of the node read');
      failure = undefined;
    } catch (error) {
      if (isStopped(signal)) return;
      const kind = kindOf(error);
      if (kind !== failure) log.info({ node: nodeName, error: wordsOf(error) }, 'allocatable of the node not read');
      failure = kind;
    }
    await wait(clock, failure === undefined ? INTERVAL_MS : RETRY_MS, signal);
  }
}

const isSame = (one: Amounts, other: Amounts | undefined): boolean =>
  one.memory === other?.memory && one.milliCpu === other?.milliCpu;

const isStopped = (signal: AbortSignal): boolean => signal.aborted;

async function readAllocatable(api: Api, nodeName: string, signal: AbortSignal): Promise<Amounts> {
  const path = `/api/v1/nodes/${encodeURIComponent(nodeName)}`;
  const text = await readText(await api({ method: 'GET', path, idleMs: IDLE_MS, signal }), LONGEST);
  const { cpu, memory } = parse(text).status.allocatable;
  const size = memory === undefined ? undefined : parseQuantity(String(memory));
  const milliCpu = cpu === undefined ? undefined : parseMilli(String(cpu));
  return { ...(size !== undefined && { memory: bytes(size) }), ...(milliCpu !== undefined && { milliCpu }) };
}

function parse(text: string): z.infer<typeof nodeSchema> {
  try {
    return nodeSchema.parse(JSON.parse(text));
  } catch {
    // The parsers' messages are not passed on, because they quote the response.
    throw new ApiUnreached('the response is not a node with an allocatable');
  }
}
