import { setTimeout as delay } from 'node:timers/promises';
import {
  fullestOf,
  isServiceError,
  parseDuration,
  podPressure,
  pressureOf,
  Reason,
  roundedSize,
  shareOf,
  steadyNow,
} from '../../core/index.ts';
import type { Messages, Span } from '../../server/api/messages.ts';
import type { ResizeClient } from '../client.ts';
import type { Output } from '../command-texts.ts';
import { errorInfoOf, UsageError } from '../output/failure.ts';
import { findPod } from '../output/pods.ts';
import { fullName, objectText, printable, table } from '../output/text.ts';

export interface TopOptions {
  readonly containers?: boolean;
  readonly sortBy?: string;
  readonly watch?: boolean;
  readonly interval?: string;
}

export interface TopContext {
  readonly client: Pick<ResizeClient, 'call'>;
  readonly output: Output;
  readonly namespace: string | undefined;
  readonly print: (text: string) => void;
  /** Writes a line to stderr. */
  readonly say: (line: string) => void;
  /** Rows of the terminal; undefined if stdout is none. */
  readonly screenRows: () => number | undefined;
}

/** How long CPU use is measured, in milliseconds. */
const SAMPLE_MS = 1000;
const DEFAULT_INTERVAL_MS = 2000;
/** Moves the cursor to the top left and clears the screen. */
const CLEAR = '\u001b[H\u001b[2J';

/** `resizectl top`: once. With --watch: until interrupted, or its output's reader or the last named pod ends. */
export async function top(context: TopContext, texts: readonly string[], options: TopOptions): Promise<void> {
  const intervalMs = intervalOf(options.interval);
  const by = sortKeyOf(options.sortBy);
  const named = texts.length === 0 ? undefined : new NamedPods(context, await refsOf(context, texts));
  const read = async (): Promise<Reading> => {
    const at = steadyNow();
    return { at, pods: await (named?.read() ?? allPods(context)) };
  };
  let before = await read();
  await delay(SAMPLE_MS);
  for (;;) {
    const now = await read();
    if (named?.areGone === true) return;
    show(context, before, now, { by, ...options });
    if (options.watch !== true) return;
    before = now;
    await delay(intervalMs);
  }
}

function show(
  { output, print, screenRows }: TopContext,
  before: Reading,
  now: Reading,
  { by, containers = false, watch = false }: TopOptions & { readonly by: SortKey },
): void {
  const pods = figuresOf(before, now, by);
  if (output === 'name') print(pods.map(({ identity }) => `${fullName(identity)}\n`).join(''));
  else if (output !== 'table') print(objectText(topObject(pods), output, watch));
  else {
    const text = topTable(pods, containers);
    const rows = watch ? screenRows() : undefined;
    if (rows === undefined) print(`${text}${watch ? '\n' : ''}`);
    else
      print(
        `${CLEAR}${text
          .split('\n')
          .slice(0, Math.max(2, rows) - 1)
          .join('\n')}\n`,
      );
  }
}

async function allPods({ client, namespace }: TopContext): Promise<readonly Messages['Pod'][]> {
  const { pods } = await client.call('ListPods', {});
  return pods.filter(({ identity }) => namespace === undefined || identity.namespace === namespace);
}

/** Finds each pod once, so that a pod that ends later is not reported as a misspelled name. Rejects with UsageError. */
const refsOf = (context: TopContext, texts: readonly string[]): Promise<NamedPod[]> =>
  Promise.all(texts.map(async (text) => ({ text, ref: await findPod(context, text) })));

interface NamedPod {
  /** The text with which the user named the pod. */
  readonly text: string;
  readonly ref: Messages['PodRef'];
}

/** The pods that the user has named. One that ends is reported once, and read no more. */
class NamedPods {
  #left: readonly NamedPod[];
  #wereRead = false;

  constructor(
    readonly context: Pick<TopContext, 'client' | 'say'>,
    pods: readonly NamedPod[],
  ) {
    this.#left = pods;
  }

  get areGone(): boolean {
    return this.#left.length === 0;
  }

  /** Reads the pods. Rejects if a pod is missing at the first read. */
  async read(): Promise<readonly Messages['Pod'][]> {
    const found = await Promise.all(this.#left.map(async (named) => ({ named, pod: await this.#pod(named) })));
    this.#wereRead = true;
    this.#left = found.flatMap(({ named, pod }) => (pod === undefined ? [] : [named]));
    return found.flatMap(({ pod }) => (pod === undefined ? [] : [pod]));
  }

  async #pod({ text, ref }: NamedPod): Promise<Messages['Pod'] | undefined> {
    const { client, say } = this.context;
    try {
      return (await client.call('GetPod', { pod: ref })).pod;
    } catch (error) {
      const isGone = isServiceError(error) && errorInfoOf(error)?.reason === Reason.UNKNOWN_POD;
      if (!this.#wereRead || !isGone) throw error;
      say(`pod ${printable(text)} has ended`);
      return undefined;
    }
  }
}

function intervalOf(text: string | undefined): number {
  if (text === undefined) return DEFAULT_INTERVAL_MS;
  const ms = parseDuration(text);
  if (ms === undefined || ms < 100)
    throw new UsageError(`--interval: invalid duration ${JSON.stringify(text)}: expected 100ms or more, such as 2s`);
  return ms;
}

function sortKeyOf(text = 'pressure'): SortKey {
  const found = sortKeys.find((key) => key === text);
  if (found === undefined)
    throw new UsageError(`--sort-by: invalid key ${JSON.stringify(text)}: expected ${sortKeys.join(', ')}`);
  return found;
}

/** The rows of `resizectl top`, computed from two readings of the API. */

/** A reading of pods from the shim. */
interface Reading {
  readonly pods: readonly Messages['Pod'][];
  /** In milliseconds, by a clock that does not jump. */
  readonly at: number;
}

/** Figures of a pod or container. Undefined: not reported by the kernel. */
interface Figures {
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

interface VolumeFigures {
  readonly name: string;
  readonly used: number;
  readonly size: number;
}

interface PodFigures {
  readonly identity: Messages['PodIdentity'];
  /** The pod's own figures; undefined if it cannot be read. Its pressure includes its containers and volumes. */
  readonly own: Figures | undefined;
  readonly unreadable: string;
  readonly containers: readonly (Figures & { readonly name: string })[];
  readonly volumes: readonly VolumeFigures[];
}

const sortKeys = ['pressure', 'cpu', 'memory', 'name'] as const;
type SortKey = (typeof sortKeys)[number];

/** Returns the figures of all pods of the later reading, sorted. */
export function figuresOf(before: Reading, now: Reading, by: SortKey): readonly PodFigures[] {
  const earlier = new Map(before.pods.map((pod) => [pod.identity.sandbox_id, pod]));
  const seconds = (now.at - before.at) / 1000;
  return now.pods.map((pod) => podFigures(pod, earlier.get(pod.identity.sandbox_id), seconds)).toSorted(orderBy(by));
}

function podFigures(
  { identity, values, unreadable }: Messages['Pod'],
  before: Messages['Pod'] | undefined,
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

function valuesFigures(values: Messages['Values'], before: Messages['Values'] | undefined, seconds: number): Figures {
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

/** Returns the CPU use between two readings. Undefined if one is missing because the container has started since. */
function cpuBetween(before: Span | undefined, now: Span | undefined, seconds: number): number | undefined {
  if (before === undefined || now === undefined || seconds <= 0) return undefined;
  return Math.max(0, now.seconds - before.seconds + (now.nanos - before.nanos) / 1e9) / seconds;
}

const compare = (one: string, other: string): number => (one < other ? -1 : Number(one > other));

const nameOf = ({ identity: { namespace, name, sandbox_id: id } }: PodFigures): string =>
  [namespace, name, id].join('\0');

/** Returns an order: largest first, and unreadable pods last. Pods with equal values are sorted by name. */
function orderBy(by: SortKey): (one: PodFigures, other: PodFigures) => number {
  const valueOf = ({ own }: PodFigures): number => {
    if (by === 'name') return 0;
    return own === undefined ? -1 : (own[by] ?? 0);
  };
  return (one, other) => valueOf(other) - valueOf(one) || compare(nameOf(one), nameOf(other));
}

/** The table of `resizectl top`: one row per pod. @param withContainers one row per container below its pod */
export function topTable(pods: readonly PodFigures[], withContainers: boolean): string {
  if (pods.length === 0) return 'no pods on this node\n';
  const all = pods.flatMap(({ own, containers }) => [...(own === undefined ? [] : [own]), ...containers]);
  // A kernel has pressure stall information for all of its cgroups, or for none.
  const hasStalls = all.some(
    ({ cpuStalled, memoryStalled }) => cpuStalled !== undefined || memoryStalled !== undefined,
  );
  const headings = [
    ...['NAMESPACE', 'NAME', ...(withContainers ? ['CONTAINER'] : [])],
    ...['PRESSURE', 'CPU', 'CPU LIMIT', 'MEMORY', 'UNRECLAIMABLE', 'MEMORY LIMIT'],
    ...(hasStalls ? ['CPU STALLED', 'MEMORY STALLED'] : []),
    'FULLEST VOLUME',
  ];
  const cells = (of: Figures, volume: string): string[] => [
    ...[percent(of.pressure), cpuText(of.cpu), of.cpuLimit, roundedSize(of.memory)],
    ...[unreclaimableText(of), of.memoryLimit === 'max' ? 'max' : roundedSize(of.memoryLimit)],
    ...(hasStalls ? [percent(of.cpuStalled), percent(of.memoryStalled)] : []),
    volume,
  ];
  const rows = pods.flatMap(({ identity, own, unreadable, containers, volumes }) => {
    const names = [identity.namespace, identity.name];
    if (own === undefined) return [[...names, ...(withContainers ? [''] : []), '?', unreadable]];
    const ofPod = [...names, ...(withContainers ? [''] : []), ...cells(own, volumeText(volumes))];
    const ofContainers = containers.map((one) => [...names, one.name, ...cells(one, '')]);
    return withContainers ? [ofPod, ...ofContainers] : [ofPod];
  });
  return table([headings, ...rows]);
}

const percent = (value: number | undefined): string =>
  value === undefined ? '' : `${value < 10 && value > 0 ? value.toFixed(1) : Math.round(value)}%`;

/** CPUs as millicores, like the limits: `120m`. */
const cpuText = (cpu: number | undefined): string => (cpu === undefined ? '' : `${Math.round(cpu * 1000)}m`);

function unreclaimableText({ unreclaimable, memoryLimit }: Figures): string {
  if (unreclaimable === undefined) return '';
  const share = memoryLimit === 'max' ? '' : ` (${percent(shareOf(unreclaimable, memoryLimit))})`;
  return `${roundedSize(unreclaimable)}${share}`;
}

function volumeText(volumes: readonly VolumeFigures[]): string {
  const fullest = fullestOf(volumes);
  return fullest === undefined ? '' : `${fullest.name} ${percent(shareOf(fullest.used, fullest.size))}`;
}

/** The object of `-o json`. Absent: not known, or no limit. */
const topObject = (pods: readonly PodFigures[]): object => ({
  pods: pods.map(({ identity, own, unreadable, containers, volumes }) => ({
    identity,
    ...(own === undefined ? { unreadable } : figuresObject(own)),
    containers: containers.map((one) => ({ name: one.name, ...figuresObject(one) })),
    volumes: volumes.map(({ name, used, size }) => ({ name, used_bytes: used, size_bytes: size })),
  })),
});

function figuresObject(of: Figures): object {
  const { pressure, cpu, cpuLimit, memory, unreclaimable, memoryLimit, cpuStalled, memoryStalled } = of;
  return {
    pressure_percent: rounded(pressure),
    ...(cpu !== undefined && { cpu_cores: rounded(cpu) }),
    cpu_limit: cpuLimit,
    memory_used_bytes: memory,
    ...(unreclaimable !== undefined && { memory_unreclaimable_bytes: unreclaimable }),
    ...(memoryLimit !== 'max' && { memory_limit_bytes: memoryLimit }),
    ...(cpuStalled !== undefined && { cpu_stalled_percent: cpuStalled }),
    ...(memoryStalled !== undefined && { memory_stalled_percent: memoryStalled }),
  };
}

const rounded = (value: number): number => Math.round(value * 1000) / 1000;
