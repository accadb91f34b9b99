import type { WirePod, WirePodIdentity, WireSpan, WireValues } from '../../api/wire/index.ts';
import { podPressure, pressureOf } from '../../core/quantities/index.ts';

/** What `resizectl top` shows of pods and containers, computed from two readings of the API. */

/** Pods as the shim has reported them. */
export interface Reading {
  readonly pods: readonly WirePod[];
  /** In milliseconds, by a clock that does not jump. */
  readonly at: number;
}

/** Undefined: the kernel does not tell. */
export interface Figures {
  /** In percent; see pressureOf. */
  readonly pressure: number;
  /** CPUs in use between the two readings. */
  readonly cpu: number | undefined;
  /** A quantity, or `max`. */
  readonly cpuLimit: string;
  /** In bytes, page cache included. */
  readonly memory: number;
  readonly unreclaimable: number | undefined;
  readonly memoryLimit: number | 'max';
  readonly cpuStalled: number | undefined;
  readonly memoryStalled: number | undefined;
}

export interface VolumeFigures {
  readonly name: string;
  readonly used: number;
  readonly size: number;
}

export interface PodFigures {
  readonly identity: WirePodIdentity;
  /** Undefined: the pod cannot be read. Its pressure counts its containers and volumes, too. */
  readonly own: Figures | undefined;
  readonly unreadable: string;
  readonly containers: readonly (Figures & { readonly name: string })[];
  readonly volumes: readonly VolumeFigures[];
}

export const sortKeys = ['pressure', 'cpu', 'memory', 'name'] as const;
export type SortKey = (typeof sortKeys)[number];

/** Returns the figures of all pods of the later reading, sorted. */
export function figuresOf(before: Reading, now: Reading, by: SortKey): readonly PodFigures[] {
  const earlier = new Map(before.pods.map((pod) => [pod.identity.sandbox_id, pod]));
  const seconds = (now.at - before.at) / 1000;
  return now.pods.map((pod) => podFigures(pod, earlier.get(pod.identity.sandbox_id), seconds)).toSorted(orderBy(by));
}

function podFigures(
  { identity, values, unreadable }: WirePod,
  before: WirePod | undefined,
  seconds: number,
): PodFigures {
  if (values === undefined)
    return { identity, own: undefined, unreadable: unreadable?.reason ?? '', containers: [], volumes: [] };
  const earlier = new Map(before?.values?.containers.map(({ id, values: of }) => [id, of]));
  const containers = values.containers
    .map(({ id, name, values: of }) => ({ name, ...valuesFigures(of, earlier.get(id), seconds) }))
    .toSorted((one, other) => other.pressure - one.pressure || compare(one.name, other.name));
  const volumes = values.volumes.map(({ name, used_bytes: used, size_bytes: size }) => ({ name, used, size }));
  const own = valuesFigures(values.pod, before?.values?.pod, seconds);
  const pressure = podPressure([own, ...containers].map(loadOf), volumes);
  return { identity, own: { ...own, pressure }, unreadable: '', containers, volumes };
}

function valuesFigures(values: WireValues, before: WireValues | undefined, seconds: number): Figures {
  const figures = {
    cpu: cpuBetween(before?.cpu_time, values.cpu_time, seconds),
    cpuLimit: values.limits.cpu,
    memory: values.memory_used_bytes,
    unreclaimable: values.memory_unreclaimable_bytes,
    memoryLimit: values.memory_max === 'max' ? ('max' as const) : Number(values.memory_max),
    cpuStalled: values.cpu_stalled_percent,
    memoryStalled: values.memory_stalled_percent,
  };
  return { ...figures, pressure: pressureOf(loadOf(figures)) };
}

const loadOf = ({ unreclaimable, memoryLimit: limit, memoryStalled, cpuStalled }: Omit<Figures, 'pressure'>) => ({
  unreclaimable,
  limit,
  memoryStalled,
  cpuStalled,
});

/** Undefined if one of the readings does not have it: the container has started since. */
function cpuBetween(before: WireSpan | undefined, now: WireSpan | undefined, seconds: number): number | undefined {
  if (before === undefined || now === undefined || seconds <= 0) return undefined;
  return Math.max(0, now.seconds - before.seconds + (now.nanos - before.nanos) / 1e9) / seconds;
}

const compare = (one: string, other: string): number => (one < other ? -1 : Number(one > other));

const nameOf = ({ identity: { namespace, name, sandbox_id: id } }: PodFigures): string =>
  [namespace, name, id].join('\0');

/** The largest first, and pods that cannot be read last. Pods with the same value are in the order of their names. */
function orderBy(by: SortKey): (one: PodFigures, other: PodFigures) => number {
  const valueOf = ({ own }: PodFigures): number => {
    if (by === 'name') return 0;
    return own === undefined ? -1 : (own[by] ?? 0);
  };
  return (one, other) => valueOf(other) - valueOf(one) || compare(nameOf(one), nameOf(other));
}
