import type { Child } from './children.ts';
import type { BenchClient, ClientKind } from './client/client.ts';
import { type SideResult, load } from './load.ts';
import type { Operation } from './operations.ts';
import { cpuMicroseconds } from './process-use.ts';
import { rounded } from './statistics.ts';

/** One call with one number in flight. */
export interface Measurement {
  readonly op: string;
  readonly inFlight: number;
  readonly direct: SideResult;
  /** `cpuUs`: CPU time of all threads of the shim for one call. */
  readonly shim: SideResult & { readonly cpuUs: number };
  /** p50 through the shim, as a multiple of the direct one. */
  readonly ratio: number;
  /** Calls per second through the shim, as a share of the direct ones. */
  readonly rpsRatio: number;
}

/** Of the processes of the shim. */
export interface Resources {
  /** The maximum resident memory of either process, in MB. */
  readonly rssMB: number;
  readonly startMs: number;
  /** The maximum after the calls that are measured for information. */
  readonly rssAtEndMB: number;
}

/** A connection to the backend and one to the shim in front of it. */
export interface Pair {
  readonly direct: BenchClient;
  readonly shim: BenchClient;
}

/** Both paths to a backend, with one connection each, as kubelet has one. */
export interface Way {
  readonly clients: Readonly<Record<ClientKind, Pair>>;
  /** The shim. */
  readonly process: Child;
}

export async function measure(
  operation: Operation,
  inFlight: number,
  seconds: number,
  { clients, process }: Way,
): Promise<Measurement> {
  let cpuBefore = 0;
  const onWarm = (): void => void (cpuBefore = cpuMicroseconds(process.pid));
  const result = await load({ ...clients[operation.client], call: operation.call, inFlight, seconds, onWarm });
  const cpuUs = rounded((cpuMicroseconds(process.pid) - cpuBefore) / result.shimCalls, 1);
  return {
    op: operation.name,
    inFlight,
    direct: result.direct,
    shim: { ...result.shim, cpuUs },
    ratio: rounded(result.shim.p50us / result.direct.p50us, 3),
    rpsRatio: rounded(result.shim.rps / result.direct.rps, 3),
  };
}

/** Throws unless the shim answers correctly, because a fast wrong answer must not be measured. */
export async function compareAnswers({ name, call, answer, client }: Operation, way: Way): Promise<void> {
  const { direct, shim } = way.clients[client];
  const [expected, found] = [await direct.call(call), await shim.call(call)];
  const amended = found.length > expected.length;
  if (answer === 'longer' ? amended : found.length === expected.length) return;
  throw new Error(`${name}: ${found.length} bytes through the shim, ${expected.length} directly, and not ${answer}`);
}
