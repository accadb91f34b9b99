/**
 * The effect of a resize on memory.high, memory.min and memory.low. Values that kubelet's memory QoS has derived from
 * request and limit are derived from the new ones; all others were set on purpose and stay. Pure.
 */
import { isSameLimit } from '../../cgroups/values/controller-files.ts';
import { type Bytes, bytes, type Limit } from '../../core/quantities/numbers.ts';
import { DEFAULT_THROTTLING_FACTOR, type MemoryAmounts, memoryHighOf } from '../../kubelet/memory-formulas.ts';
import type { Settings } from '../pods/pod-state.ts';

/** The values of one cgroup, of a container or of a pod. */
export interface MemoryQosChange {
  /** The present memory limit. */
  readonly limit: Limit<Bytes>;
  /** The known present contents of memory.high, memory.min and memory.low. */
  readonly settings: Settings;
  /** The possible present requests. 0: no request. */
  readonly requests: PossibleRequests;
  readonly wanted: WantedMemory;
}

export interface PossibleRequests {
  /** Requests from the spec, kubelet or an earlier resize. */
  readonly declared: readonly Bytes[];
  /** Other possible requests, checked only with kubelet's default factor. */
  readonly supposed: readonly Bytes[];
}

/** The new limit and the new request. An absent value stays. */
export interface WantedMemory {
  readonly limit?: Limit<Bytes> | undefined;
  readonly request?: Bytes | undefined;
}

/** Input of kubelet's formula that is the same for the whole node. */
export interface MemoryQosNode {
  readonly pageSize: Bytes;
  /** Returns the sizes that may count as the limit of a container without a limit, the most likely one first. */
  readonly sizes: () => readonly Bytes[];
  /** The factor in kubelet's configuration, if the pod's containers show it. */
  readonly factor?: number | undefined;
}

export const MEMORY_HIGH = 'memory.high';
const RESERVATIONS = ['memory.min', 'memory.low'] as const;
export const MEMORY_QOS_FILES: readonly string[] = [MEMORY_HIGH, ...RESERVATIONS];

/** KEP-2570 with KEP-1287: returns the files that change and their new content. */
export function memoryQosAfter(change: MemoryQosChange, node: MemoryQosNode): Settings {
  const { limit, settings, wanted } = change;
  const high = sizeIn(settings, MEMORY_HIGH);
  const origin = high === undefined || high === 'max' ? undefined : originOf(high, change, node);
  const isPresentRequest = (size: Bytes): boolean =>
    [...change.requests.declared, ...(origin ? [origin.request] : [])].some((known) => isSame(known, size, node)) ||
    // A request equal to the limit has no memory.high.
    (high === 'max' && limit !== 'max' && isSame(limit, size, node));
  const changed = RESERVATIONS.flatMap((file): [string, string][] => {
    const size = sizeIn(settings, file);
    if (wanted.request === undefined || size === undefined || size === 'max' || size === 0) return [];
    return isPresentRequest(size) && !isSame(wanted.request, size, node) ? [[file, String(wanted.request)]] : [];
  });
  const then = origin && highAfter(origin, wanted, node);
  if (then !== undefined && then !== high) changed.push([MEMORY_HIGH, String(then)]);
  return Object.fromEntries(changed);
}

/** The values that a memory.high was derived from. */
interface Origin extends MemoryAmounts {
  readonly factor: number;
}

/** Returns the values that a memory.high was derived from. Undefined if no formula results in this value. */
function originOf(
  high: Bytes,
  { limit, requests, wanted }: MemoryQosChange,
  { pageSize, sizes, factor: configured }: MemoryQosNode,
): Origin | undefined {
  if (wanted.limit === undefined && wanted.request === undefined) return undefined;
  const find = (known: readonly Bytes[], factor: number | undefined, limits: readonly Bytes[]): Origin | undefined => {
    if (factor === undefined) return undefined;
    const origins = known.flatMap((request) => limits.map((each) => ({ request, limit: each, factor })));
    return origins.find((origin) => memoryHighOf(origin, factor, pageSize) === high);
  };
  const { declared, supposed } = requests;
  const amongLimits = (limits: readonly Bytes[]): Origin | undefined =>
    find([...declared, ...supposed], DEFAULT_THROTTLING_FACTOR, limits) ?? find(declared, configured, limits);
  // A container without its own limit may have a finite limit from its pod. kubelet then uses the size of the node.
  return (limit === 'max' ? undefined : amongLimits([limit])) ?? amongLimits(sizes());
}

function highAfter(origin: Origin, wanted: WantedMemory, { pageSize, sizes }: MemoryQosNode): Limit<Bytes> | undefined {
  const request = wanted.request ?? origin.request;
  const limit = wanted.limit === 'max' ? sizes()[0] : (wanted.limit ?? origin.limit);
  if (limit === undefined) return undefined;
  return memoryHighOf({ request, limit }, origin.factor, pageSize) ?? 'max';
}

const isSame = (asked: Bytes, found: Bytes, { pageSize }: MemoryQosNode): boolean =>
  isSameLimit(asked, found, pageSize);

/** Returns the size in a file. Undefined without the file, or for text that neither kernel nor kubelet writes. */
export function sizeIn(settings: Settings, file: string): Limit<Bytes> | undefined {
  const text = settings[file]?.trim();
  if (text === 'max') return 'max';
  const size = text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
  return size === undefined ? undefined : bytes(size);
}
