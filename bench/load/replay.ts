import { MESSAGE_PREFIX_SIZE } from '../../src/core/grpc.ts';
import { Connection, StatusError } from '../client/connection.ts';
import type { RecordedCall } from './recording.ts';

/** Calls with the connections on which they are made. */
export interface Player {
  /** Makes the calls at their recorded times. Returns their durations in microseconds, in the order of the calls. */
  play(speed: number): Promise<Float64Array>;
  close(): void;
}

const OK = 0;

/** Opens as many connections as the recording has. */
export async function openPlayer(socket: string, calls: readonly RecordedCall[]): Promise<Player> {
  const connections = new Map<number, Connection>();
  for (const { connection } of calls)
    if (!connections.has(connection)) connections.set(connection, await Connection.open(socket));
  return {
    play: (speed) => play(calls, connections, speed),
    close: () => {
      for (const connection of connections.values()) connection.close();
    },
  };
}

function play(
  calls: readonly RecordedCall[],
  connections: ReadonlyMap<number, Connection>,
  speed: number,
): Promise<Float64Array> {
  const durations = new Float64Array(calls.length);
  const begin = performance.now();
  return new Promise((resolve, reject) => {
    let next = 0;
    let ended = 0;
    const start = (call: RecordedCall, place: number): void => {
      const at = performance.now();
      connections.get(call.connection)?.start(call, (error, length) => {
        durations[place] = (performance.now() - at) * 1000;
        const fault = faultOf(call, error, length);
        if (fault !== undefined) reject(new Error(`${call.path}: ${fault}`, { cause: error }));
        ended += 1;
        if (ended === calls.length) resolve(durations);
      });
    };
    const step = (): void => {
      const now = performance.now();
      for (;;) {
        const call = calls[next];
        if (call === undefined) return;
        const due = begin + call.atMs / speed;
        if (due > now) {
          setTimeout(step, due - now);
          return;
        }
        start(call, next);
        next += 1;
      }
    };
    if (calls.length === 0) resolve(durations);
    else step();
  });
}

/** A wrong answer must not be measured. The shim adds to some answers, and takes nothing away. */
function faultOf(call: RecordedCall, error: Error | undefined, length = 0): string | undefined {
  if (error !== undefined && !(error instanceof StatusError)) return error.message;
  const status = error?.code ?? OK;
  if (status !== call.status) return `status ${status}, recorded was ${call.status}`;
  const recorded = call.responses.reduce((sum, response) => sum + MESSAGE_PREFIX_SIZE + response.length, 0);
  return length < recorded ? `${length} bytes, recorded were ${recorded}` : undefined;
}
