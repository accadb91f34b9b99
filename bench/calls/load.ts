import type { BenchClient, Call } from '../client/client.ts';
import { percentile, rounded, Samples } from '../statistics.ts';
import type { SideName } from './sides.ts';

/** The result of one side under load. */
export interface SideResult {
  readonly p50us: number;
  readonly p99us: number;
  /** Calls per second, while calls were made. */
  readonly rps: number;
  /** CPU time of all threads of the process between client and backend, for one call. Null if there is none. */
  readonly cpuUs: number | null;
}

/** Results by side. */
export type SideResults = Readonly<Partial<Record<SideName, SideResult>>>;

/** A side with a client that is connected to it. */
export interface Connected {
  readonly name: SideName;
  readonly client: BenchClient;
  /** Returns the CPU time so far of the process between client and backend, in microseconds. Absent if none. */
  readonly cpuMicroseconds?: () => number;
}

export interface LoadOptions {
  readonly call: Call;
  readonly inFlight: number;
  /** The time of all sides together, without the warm-up. */
  readonly seconds: number;
}

interface Side extends Connected {
  readonly samples: Samples;
  /** Milliseconds in which calls were made. */
  busy: number;
}

/**
 * Short enough for a burst of other work on the machine to hit all sides, long enough for the edges of a batch not to
 * matter.
 */
const BATCH_MS = 50;
const WARM_UP_SHARE = 0.15;

/** Repeats the call, through all sides in alternating batches. Rejects if a call fails. */
export async function load(connected: readonly Connected[], options: LoadOptions): Promise<SideResults> {
  await alternate(connected.map(sideOf), options, options.seconds * WARM_UP_SHARE, 1);
  const sides = connected.map(sideOf);
  const before = sides.map(({ cpuMicroseconds }) => cpuMicroseconds?.());
  await alternate(sides, options, options.seconds, 2);
  return Object.fromEntries(sides.map((side, index) => [side.name, resultOf(side, before[index])]));
}

const sideOf = (connected: Connected): Side => ({ ...connected, samples: new Samples(), busy: 0 });

async function alternate(
  sides: readonly Side[],
  { call, inFlight }: LoadOptions,
  seconds: number,
  least: number,
): Promise<void> {
  const rounds = Math.max(least, Math.round((seconds * 1000) / (sides.length * BATCH_MS)));
  for (let round = 0; round < rounds; round += 1) {
    // The order alternates, because each side finds the machine as the previous one left it.
    for (const side of round % 2 === 0 ? sides : sides.toReversed()) await batch(side, call, inFlight);
  }
}

function batch(side: Side, call: Call, inFlight: number): Promise<void> {
  const { client, samples, name } = side;
  const begin = performance.now();
  const end = begin + BATCH_MS;
  let running = 0;
  return new Promise((resolve, reject) => {
    const start = (at: number): void => {
      running += 1;
      client.start(call, (error) => {
        running -= 1;
        if (error !== undefined) {
          reject(new Error(`${name}, ${call.path}: ${error.message}`));
          return;
        }
        const now = performance.now();
        samples.add((now - at) * 1000);
        if (now < end) start(now);
        else if (running === 0) {
          side.busy += now - begin;
          resolve();
        }
      });
    };
    for (let index = 0; index < inFlight; index += 1) start(performance.now());
  });
}

function resultOf({ samples, busy, cpuMicroseconds }: Side, before: number | undefined): SideResult {
  const sorted = samples.sorted();
  const cpuUs =
    cpuMicroseconds === undefined || before === undefined
      ? null
      : rounded((cpuMicroseconds() - before) / samples.count, 1);
  return {
    p50us: rounded(percentile(sorted, 0.5), 1),
    p99us: rounded(percentile(sorted, 0.99), 1),
    rps: Math.round((samples.count * 1000) / busy),
    cpuUs,
  };
}
