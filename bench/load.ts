import type { BenchClient, Call } from './client/client.ts';
import { Samples, percentile, rounded } from './statistics.ts';

/** The result of one side under load. */
export interface SideResult {
  readonly p50us: number;
  readonly p99us: number;
  /** Calls per second, while calls were made. */
  readonly rps: number;
}

interface Side {
  readonly connection: BenchClient;
  readonly samples: Samples;
  /** Milliseconds in which calls were made. */
  busy: number;
}

export interface LoadOptions {
  readonly direct: BenchClient;
  readonly shim: BenchClient;
  readonly call: Call;
  readonly inFlight: number;
  /** Of both sides together, without the warm-up. */
  readonly seconds: number;
  /** Called when the warm-up is over. */
  readonly onWarm: () => void;
}

/**
 * Short enough for a burst of other work on the machine to hit both sides, long enough for the edges of a batch not to
 * matter.
 */
const BATCH_MS = 50;
const WARM_UP_SHARE = 0.15;

/** Repeats the call, direct and through the shim in alternating batches. Rejects if a call fails. */
export async function load(options: LoadOptions): Promise<{ direct: SideResult; shim: SideResult; shimCalls: number }> {
  const { call, inFlight, seconds } = options;
  const warm = alternate(options, (seconds * 1000 * WARM_UP_SHARE) / 2);
  for (const side of warm) await batch(side, call, inFlight);
  options.onWarm();
  const sides = { direct: sideOf(options.direct), shim: sideOf(options.shim) };
  const rounds = Math.max(2, Math.round((seconds * 1000) / (2 * BATCH_MS)));
  for (let round = 0; round < rounds; round += 1) {
    // The order alternates, because each side finds the machine as the previous one left it.
    const order = round % 2 === 0 ? [sides.direct, sides.shim] : [sides.shim, sides.direct];
    for (const side of order) await batch(side, call, inFlight);
  }
  return { direct: resultOf(sides.direct), shim: resultOf(sides.shim), shimCalls: sides.shim.samples.count };
}

const sideOf = (connection: BenchClient): Side => ({ connection, samples: new Samples(), busy: 0 });

function* alternate({ direct, shim }: LoadOptions, milliseconds: number): Iterable<Side> {
  const sides = [sideOf(direct), sideOf(shim)];
  for (let spent = 0; spent < milliseconds; spent += BATCH_MS) yield* sides;
}

function batch(side: Side, call: Call, inFlight: number): Promise<void> {
  const { connection, samples } = side;
  const begin = performance.now();
  const end = begin + BATCH_MS;
  let running = 0;
  return new Promise((resolve, reject) => {
    const start = (at: number): void => {
      running += 1;
      connection.start(call, (error) => {
        running -= 1;
        if (error !== undefined) {
          reject(new Error(`${call.path}: ${error.message}`));
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

function resultOf({ samples, busy }: Side): SideResult {
  const sorted = samples.sorted();
  return {
    p50us: rounded(percentile(sorted, 0.5), 1),
    p99us: rounded(percentile(sorted, 0.99), 1),
    rps: Math.round((samples.count * 1000) / busy),
  };
}
