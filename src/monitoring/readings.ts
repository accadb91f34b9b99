import { readdirSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import {
  type BypassTimes,
  type EndpointState,
  type Family,
  type NodeReadings,
  type ReadinessReport,
  Reading,
  endpointStates,
  families,
} from '../observe/index.ts';

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
