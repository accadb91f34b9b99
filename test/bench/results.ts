import type { SideResult } from '../../bench/calls/load.ts';
import type { Measurement } from '../../bench/calls/measure.ts';
import type { Results } from '../../bench/run.ts';
import type { WorkResult } from '../../bench/work/index.ts';

/** Results of a bench that were made by hand. */

export const side = (p50us: number, rps: number): SideResult => ({ p50us, p99us: 2 * p50us, rps, cpuUs: 31.25 });

export const direct = side(100, 10_000);
export const relay = side(120, 8000);

/** A call with direct, relay and shim. */
export const measurement = (
  op: string,
  inFlight: number,
  shim: SideResult,
  client: Measurement['client'] = 'grpc-go',
): Measurement => ({ op, client, inFlight, sides: { direct, relay, shim } });

export const results = (given: Partial<Results>): Results => ({
  measurements: [],
  workResults: [],
  versions: { Node: '26.10.0' },
  ...given,
});

export const work = (name: string, p50: number, unit: WorkResult['unit'] = 'ms', on?: string): WorkResult => ({
  work: name,
  unit,
  p50,
  samples: 7,
  ...(on === undefined ? {} : { on }),
});
