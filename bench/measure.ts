import type { Child } from './children.ts';
import type { BenchClient, ClientKind } from './client/client.ts';
import { type SideResult, load } from './load.ts';
import type { Operation } from './operations.ts';
import { cpuMicroseconds } from './process-use.ts';
import { rounded } from './statistics.ts';

/** One call at one number in flight. */
export interface Measurement {
  readonly op: string;
  readonly inFlight: number;
  readonly direct: SideResult;
  /** `cpuUs`: CPU time that the shim takes for a call, of all its threads. */
  readonly shim: SideResult & { readonly cpuUs: number };
  /** p50 through the shim, as a multiple of direct's. */
  readonly ratio: number;
  /** Calls a second through the shim, as a share of direct's. */
  readonly rpsRatio: number;
}

/** Of the shim's processes. */
export interface Resources {
  /** The most that either of them had resident, in MB. */
  readonly rssMB: number;
  readonly startMs: number;
  /** The same after the calls that are measured for information. */
  readonly rssAtEndMB: number;
}

/** A connection to the backend and one to the shim before it. */
export interface Pair {
  readonly direct: BenchClient;
  readonly shim: BenchClient;
}

/** Both ways to a backend, one connection each, as kubelet has one. */
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

/** Throws unless the shim answers as it should: a fast wrong answer is not measured. */
export async function compareAnswers({ name, call, answer, client }: Operation, way: Way): Promise<void> {
  const { direct, shim } = way.clients[client];
  const [expected, found] = [await direct.call(call), await shim.call(call)];
  const amended = found.length > expected.length;
  if (answer === 'longer' ? amended : found.length === expected.length) return;
  throw new Error(`${name}: ${found.length} bytes through the shim, ${expected.length} direct, and not ${answer}`);
}
