import type { Measurement, Resources } from './measure.ts';
import type { WorkResult } from './work/index.ts';

/** The limits that `npm run bench -- --check` enforces. */

interface OperationBar {
  readonly op: string;
  readonly inFlight: number;
  readonly what: 'p50' | 'rps';
  /** Maximum for p50, or minimum for calls per second, as a share of direct's. */
  readonly limit: number;
}

const operationBars: readonly OperationBar[] = [
  { op: 'Version', inFlight: 1, what: 'p50', limit: 1.7 },
  { op: 'Version', inFlight: 16, what: 'rps', limit: 0.85 },
  { op: 'ListContainers 500', inFlight: 1, what: 'p50', limit: 1.15 },
  { op: 'ContainerStatus amended', inFlight: 1, what: 'p50', limit: 2.5 },
];

const resourceBars = { rssMB: 80, startMs: 300 } as const satisfies Partial<Record<keyof Resources, number>>;

/** Maximum p50, in the unit of the result. */
const workBars: Readonly<Record<string, number>> = {
  'Plan for 10 containers': 100,
  'ResizePod of 3 containers': 5,
  'Remount of a volume': 1,
  'Recovery of 250 pods': 1500,
  'Packaged daemon, first answer': 250,
  'Packaged daemon, memory when idle': 60,
};

export interface Verdict {
  readonly text: string;
  readonly met: boolean;
}

/** Undefined without a limit. */
export function judge(measurement: Measurement): Verdict | undefined {
  const bar = operationBars.find(({ op, inFlight }) => op === measurement.op && inFlight === measurement.inFlight);
  if (bar === undefined) return undefined;
  return bar.what === 'p50'
    ? verdict(`p50 <= ${bar.limit}`, measurement.ratio <= bar.limit)
    : verdict(`calls/s >= ${bar.limit}`, measurement.rpsRatio >= bar.limit);
}

export function judgeResource(name: keyof typeof resourceBars, value: number): Verdict {
  return verdict(`<= ${resourceBars[name]}`, value <= resourceBars[name]);
}

/** Undefined without a limit. */
export function judgeWork({ work, unit, p50 }: WorkResult): Verdict | undefined {
  const bar = workBars[work];
  return bar === undefined ? undefined : verdict(`p50 <= ${bar} ${unit}`, p50 <= bar);
}

const verdict = (text: string, met: boolean): Verdict => ({ text: `${text}: ${met ? 'met' : 'NOT MET'}`, met });
