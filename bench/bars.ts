import type { Measurement } from './calls/measure.ts';
import type { SideName } from './calls/sides.ts';
import type { ClientKind } from './client/client.ts';
import type { Results } from './run.ts';
import type { WorkResult } from './work/index.ts';

/** The limits that `npm run bench -- --check` enforces. */

interface Bar {
  readonly name: string;
  readonly unit: string;
  readonly limit: number;
  /** The limit is the least that is allowed. */
  readonly isLeast?: true;
  /** Undefined if it was not measured. */
  readonly figure: (results: Results) => number | undefined;
}

/** The client that stands in for kubelet: grpc-go, or the client of bare frames if Go is not installed. */
const KUBELET: readonly ClientKind[] = ['grpc-go', 'frames'];

const callBars: readonly Bar[] = [
  {
    name: 'Version, 1 in flight: time that the shim adds',
    unit: "times the relay's",
    limit: 1.4,
    figure: of('Version', 1, KUBELET, (measurement) => added(measurement, 'shim') / added(measurement, 'relay')),
  },
  {
    name: 'Version, 16 in flight: calls a second',
    unit: "times the relay's",
    limit: 0.93,
    isLeast: true,
    figure: of('Version', 16, KUBELET, ({ sides }) => sides.shim.rps / (sides.relay?.rps ?? Number.NaN)),
  },
  ...[1, 16].flatMap((inFlight) => [
    p50Bar('Status verbose, amended', inFlight, KUBELET, 1.6),
    p50Bar('ContainerStatus, amended', inFlight, ['frames'], 1.6),
    p50Bar('RuntimeConfig, handled', inFlight, KUBELET, 2.5),
  ]),
  p50Bar('ListContainers, 500 of the fake', 1, ['grpc-js'], 1.15),
  {
    name: 'CPU time of the calls that kubelet repeats',
    unit: "times the relay's",
    limit: 1.75,
    figure: ({ measurements }) => {
      const ratio = cpuOf(measurements, 'shim') / cpuOf(measurements, 'relay');
      return Number.isNaN(ratio) ? undefined : ratio;
    },
  },
  {
    name: 'New connection and one Version',
    unit: 'ms',
    limit: 2,
    figure: of('New connection and one Version', 1, KUBELET, ({ sides }) => sides.shim.p50us / 1000),
  },
];

/** Limits for works: name of the work, unit, limit, and the node or platform of the measurement. */
const workBars: readonly (readonly [work: string, unit: string, limit: number, on?: string])[] = [
  ['First ContainerStatus of a container', 'ms', 6.5],
  ['Plan for 10 containers', 'us', 100],
  ['ResizePod of 3 containers', 'ms', 3],
  ['ResizePod of 3 containers, CPU time', 'ms', 4],
  ['Remount of a volume', 'ms', 1],
  ['Recovery of 1,000 pods', 'ms', 600],
  ['Packaged daemon, first answer', 'ms', 110],
  ...['Packaged daemon', 'Single executable'].flatMap((name) => [
    [`${name}, memory when idle`, 'MB', 58] as const,
    [`${name}, memory under load`, 'MB', 72] as const,
  ]),
  ['Growth, heap of each pod and container', 'KiB', 4],
  ['Growth, longest turn of all', 'ms', 10, '1000 pods'],
  ['Real load: CPU time of the shim', "times containerd's", 0.25],
  ['Real load: p99 added', 'ms', 1],
  ['Real load: slowest call added', 'ms', 5],
  ...['UpdateContainerResources', 'ResizePod'].flatMap((name) => [
    [`Storm, ${name}: slowest pod`, 'times', 3] as const,
    [`Storm, ${name}: p99 of a forwarded call`, 'times', 3] as const,
  ]),
];

const leastWorkBars: readonly (readonly [work: string, unit: string, limit: number])[] = [
  ['Storm, UpdateContainerResources: throughput', 'times', 0.95],
  ['Storm, ResizePod: throughput', 'times', 0.95],
];

export const bars: readonly Bar[] = [
  ...callBars,
  ...workBars.map(([work, unit, limit, on]) => ({ ...workBar(work, unit, limit), figure: figureOf(work, on) })),
  ...leastWorkBars.map(([work, unit, limit]) => ({ ...workBar(work, unit, limit), isLeast: true as const })),
  {
    name: 'Growth from 110 to 1,000 pods, of what grows most',
    unit: 'times linear',
    limit: 1.1,
    figure: ({ workResults }) => mostGrowth(workResults),
  },
];

function workBar(name: string, unit: string, limit: number): Bar {
  return { name, unit, limit, figure: figureOf(name) };
}

function figureOf(work: string, on?: string): Bar['figure'] {
  return ({ workResults }) =>
    workResults.find((result) => result.work === work && (on === undefined || result.on === on))?.p50;
}

function p50Bar(op: string, inFlight: number, clients: readonly ClientKind[], limit: number): Bar {
  const figure = of(op, inFlight, clients, ({ sides }) => sides.shim.p50us / sides.direct.p50us);
  const by = clients.includes('grpc-go') ? '' : `, ${clients.join()}`;
  return { name: `${op}${by}, ${inFlight} in flight`, unit: 'times direct', limit, figure };
}

/** Returns the figure of a call, measured with the first of these clients that has a result. */
function of(
  op: string,
  inFlight: number,
  clients: readonly ClientKind[],
  figure: (measurement: Measurement) => number,
): Bar['figure'] {
  return ({ measurements }) => {
    const found = clients
      .map((client) => measurements.find((one) => one.op === op && one.inFlight === inFlight && one.client === client))
      .find((one) => one !== undefined);
    return found && figure(found);
  };
}

/** The calls that kubelet repeats. */
const CALLS = [
  'Version',
  'ListContainers, empty',
  'ListImages, empty',
  'Status verbose, amended',
  'ContainerStatus, amended',
  'RuntimeConfig, handled',
] as const;

/** Returns the CPU time of a side for these calls, each once alone and once among sixteen. NaN if one is missing. */
function cpuOf(measurements: readonly Measurement[], side: SideName): number {
  const client = KUBELET.find((one) => measurements.some((measurement) => measurement.client === one));
  const cost = (op: string, inFlight: number): number =>
    measurements.find((one) => one.op === op && one.inFlight === inFlight && one.client === client)?.sides[side]
      ?.cpuUs ?? Number.NaN;
  return CALLS.flatMap((op) => [1, 16].map((inFlight) => cost(op, inFlight))).reduce((sum, us) => sum + us, 0);
}

/** The time that a side adds to the direct median, in microseconds. */
const added = ({ sides }: Measurement, side: SideName): number =>
  (sides[side]?.p50us ?? Number.NaN) - sides.direct.p50us;

const [FEW, MANY] = [110, 1000];
/** The longest turns have their own limit, and are too short for a comparison. */
const isCompared = ({ work }: WorkResult): boolean => work.startsWith('Growth, ') && !work.includes('longest turn');

/** Returns the largest factor by which a figure grows faster than the number of pods. */
function mostGrowth(results: readonly WorkResult[]): number | undefined {
  const growths = results.filter(isCompared).flatMap(({ work, on, p50 }) => {
    const few = results.find((result) => result.work === work && result.on === `${FEW} pods`)?.p50;
    return on === `${MANY} pods` && few !== undefined ? [p50 / few / (MANY / FEW)] : [];
  });
  return growths.length === 0 ? undefined : Math.max(...growths);
}

export interface Verdict {
  readonly name: string;
  readonly unit: string;
  /** `at most 1.5` */
  readonly limit: string;
  readonly figure: number;
  readonly isMet: boolean;
}

/** Returns the verdicts about everything that was measured. */
export function judge(results: Results): Verdict[] {
  return bars.flatMap(({ name, unit, limit, isLeast = false, figure: find }) => {
    const figure = find(results);
    if (figure === undefined) return [];
    const isMet = isLeast ? figure >= limit : figure <= limit;
    return [{ name, unit, limit: `${isLeast ? 'at least' : 'at most'} ${limit}`, figure, isMet }];
  });
}
