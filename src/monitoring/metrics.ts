import { readdirSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import {
  type BypassTimes,
  bounds,
  type Description,
  type EndpointState,
  endpointStates,
  type Family,
  families,
  Histogram,
  type NodeReadings,
  type ReadinessReport,
  Reading,
  type Series,
} from '../core/index.ts';

export interface Readings {
  readonly version: string;
  readonly connections: number;
  readonly readiness: ReadinessReport;
  readonly node: NodeReadings;
  readonly bypass: BypassTimes;
  readonly endpoint: EndpointState;
}

/** The metrics that are read at scrape time, in the order of families.ts. */
export function readingFamilies({
  version,
  connections,
  readiness,
  node,
  bypass,
  endpoint,
}: Readings): readonly Family[] {
  const one = (value: number) => () => [[[], value] as const];
  const { volumes, unfinished } = node;
  const states = [...new Set(['Deferred', 'InProgress', 'Proposed', ...unfinished])];
  return [
    new Reading(families.buildInfo, () => [[[version, process.version], 1]]),
    new Reading(families.ready, () =>
      readiness.checks.map(({ name, ready }) => [[name] as const, ready ? 1 : 0] as const),
    ),
    new Reading(families.intercepting, one(readiness.passThrough === undefined ? 1 : 0)),
    new Reading(families.connections, one(connections)),
    new Reading(families.pods, one(node.pods)),
    new Reading(families.volumes, one(volumes.count)),
    new Reading(families.volumeSize, one(volumes.size)),
    new Reading(families.volumeUse, one(volumes.used)),
    new Reading(families.unfinished, () =>
      states.map((state) => [[state] as const, unfinished.filter((other) => other === state).length] as const),
    ),
    new Reading(families.foresightPresent, one(node.foresight ? 1 : 0)),
    new Reading(families.kubeletEndpoint, () =>
      endpointStates.map((state) => [[state] as const, state === endpoint ? 1 : 0] as const),
    ),
    new Reading(families.bypassStart, one((bypass.start ?? 0) / 1000)),
    new Reading(families.bypassEnd, one((bypass.end ?? 0) / 1000)),
  ];
}

/** The standard process metrics of Prometheus clients. */
export function processFamilies(): readonly Family[] {
  const one = (value: number) => () => [[[], value] as const];
  const { user, system } = process.cpuUsage();
  return [
    new Reading(families.processCpu, one((user + system) / 1e6)),
    new Reading(families.processMemory, one(process.memoryUsage.rss())),
    // Minus the descriptor that reads the folder.
    new Reading(families.processFiles, one(readdirSync('/proc/self/fd').length - 1)),
    new Reading(families.processStart, one(performance.timeOrigin / 1000)),
  ];
}

const EVERY_MS = 200;

/**
 * Measures the lag of the event loop with a timer. The monitor of node:perf_hooks only has quantiles since the start,
 * which can neither be aggregated over nodes nor show when the lag occurred.
 */
export function measureEventLoop(): { readonly family: Histogram<readonly []>; stop(): void } {
  const family = new Histogram(families.eventLoopLag);
  let due = performance.now() + EVERY_MS;
  const timer = setInterval(() => {
    const now = performance.now();
    family.observe([], Math.max(0, now - due) / 1000);
    due = now + EVERY_MS;
  }, EVERY_MS).unref();
  return { family, stop: () => clearInterval(timer) };
}

/** The content type of Prometheus' text format. */
export const expositionType = 'text/plain; version=0.0.4; charset=utf-8';

/**
 * Formats families in Prometheus' text format (https://prometheus.io/docs/instrumenting/exposition_formats). A family
 * without series appears with its help and type.
 */
export function expositionOf(families: Iterable<Family>): string {
  const lines: string[] = [];
  for (const family of families) {
    const { description } = family;
    const { name, type, help } = description;
    lines.push(`# HELP ${name} ${help.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')}`, `# TYPE ${name} ${type}`);
    for (const series of family.series()) lines.push(...linesOf(description, series));
  }
  return `${lines.join('\n')}\n`;
}

function linesOf({ name, labels }: Description, series: Series): string[] {
  const pairs = labels.map((label, index): Pair => [label, series.labels[index] ?? '']);
  if (series.kind === 'number') return [`${name}${braced(pairs)} ${numberText(series.value)}`];
  let upTo = 0;
  const buckets = bounds.map((bound, index) => {
    upTo += series.counts[index] ?? 0;
    return `${name}_bucket${braced([...pairs, ['le', String(bound)]])} ${upTo}`;
  });
  return [
    ...buckets,
    `${name}_bucket${braced([...pairs, ['le', '+Inf']])} ${series.count}`,
    `${name}_sum${braced(pairs)} ${numberText(series.sum)}`,
    `${name}_count${braced(pairs)} ${series.count}`,
  ];
}

type Pair = readonly [label: string, value: string];

const braced = (pairs: readonly Pair[]): string =>
  pairs.length === 0 ? '' : `{${pairs.map(([label, value]) => `${label}="${escaped(value)}"`).join(',')}}`;

const escaped = (value: string): string =>
  value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');

/** Rounds fractions to nanoseconds, the resolution of the measured times. */
const numberText = (value: number): string => String(Number.isInteger(value) ? value : Number(value.toFixed(9)));
