import type { Children } from '../children.ts';
import type { BenchClient, ClientKind } from '../client/client.ts';
import { ConnectingClient } from '../client/connecting.ts';
import { Connection } from '../client/connection.ts';
import { loadByGo } from '../client/go.ts';
import { GrpcClient } from '../client/grpc.ts';
import type { GoPrograms } from '../go/programs.ts';
import type { Operation } from '../operations.ts';
import { cpuMicroseconds } from '../process-use.ts';
import { type Connected, load, type SideResult, type SideResults } from './load.ts';
import type { Side, Way } from './sides.ts';

/** One call with one client and one number in flight. */
export interface Measurement {
  readonly op: string;
  readonly client: ClientKind;
  readonly inFlight: number;
  readonly sides: SideResults & { readonly direct: SideResult; readonly shim: SideResult };
}

export interface MeasureOptions {
  readonly children: Children;
  /** Undefined without Go. */
  readonly programs: GoPrograms | undefined;
  /** For each call and number in flight, all sides together. */
  readonly seconds: number;
}

/** Measures an operation with one number in flight, on all sides. */
export async function measure(
  operation: Operation,
  client: ClientKind,
  inFlight: number,
  way: Way,
  { children, programs, seconds }: MeasureOptions,
): Promise<Measurement> {
  const { call, name: op, connects = false } = operation;
  const options = { call, inFlight, seconds, connects };
  const found =
    client === 'grpc-go'
      ? await loadByGo(children, programs ?? missing(), way.sides, options)
      : await loadHere(client, way.sides, options);
  const { direct, shim } = found;
  if (direct === undefined || shim === undefined) throw new Error(`${op}: no results of direct and shim`);
  return { op, client, inFlight, sides: { ...found, direct, shim } };
}

function missing(): never {
  throw new Error('the client in Go is not built');
}

async function loadHere(
  client: 'grpc-js' | 'frames',
  sides: readonly Side[],
  options: Parameters<typeof load>[1] & { readonly connects: boolean },
): Promise<SideResults> {
  const connected: Connected[] = [];
  for (const { name, socket, child } of sides) {
    const cpu = child === undefined ? {} : { cpuMicroseconds: () => cpuMicroseconds(child.pid) };
    connected.push({ name, client: await clientOf(client, socket, options.connects), ...cpu });
  }
  try {
    return await load(connected, options);
  } finally {
    for (const one of connected) one.client.close();
  }
}

async function clientOf(kind: 'grpc-js' | 'frames', socket: string, connects: boolean): Promise<BenchClient> {
  if (kind === 'grpc-js') return new GrpcClient(socket);
  return connects ? new ConnectingClient(socket) : Connection.open(socket);
}

const LEAST_OF_PEER = 0.95;

/** Throws unless each side answers correctly, because a fast wrong answer must not be measured. */
export async function compareAnswers(operation: Operation, { sides }: Way): Promise<void> {
  const lengths = new Map<string, number>();
  for (const side of sides) {
    const connection = await Connection.open(side.socket);
    lengths.set(side.name, (await connection.call(operation.call)).length);
    connection.close();
  }
  assertAnswers(operation, lengths);
}

/**
 * Throws unless each side's answer is as long as it must be.
 * @param lengths in bytes, by side
 */
export function assertAnswers(
  { name, answer }: Pick<Operation, 'name' | 'answer'>,
  lengths: ReadonlyMap<string, number>,
): void {
  const expected = lengths.get('direct') ?? 0;
  for (const [side, found] of lengths) {
    const isLonger = side === 'shim' && answer === 'longer';
    // The typed proxy leaves out fields with the default value, which not each runtime does.
    const isAsLong = side === 'peer' ? found >= expected * LEAST_OF_PEER : found === expected;
    if (isLonger ? found > expected : isAsLong) continue;
    throw new Error(`${name}: ${found} bytes through ${side}, ${expected} directly, and not ${answer}`);
  }
}
