import { type DestinationStream, destination, pino, stdTimeFunctions } from 'pino';
import type { Log } from './interfaces.ts';

export interface LogOptions {
  /** Lowest level to write. */
  readonly level: 'trace' | 'debug' | 'info' | 'warn' | 'error';
  /** Destination of the lines. Default: stderr, because stdout is for the output of --help and --version. */
  readonly destination?: DestinationStream;
}

/**
 * Creates the log: one JSON object per line with `level` as a name, `time` in ISO 8601, the fields and `msg`. Writes
 * synchronously: a worker or a buffer would lose the last lines before a crash, which matter most.
 */
export function createLog({ level, destination: given }: LogOptions): Log {
  return pino(
    {
      level,
      base: null,
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (name) => ({ level: name }) },
    },
    given ?? stderr(),
  );
}

function stderr(): DestinationStream {
  const stream = destination({ dest: 2, sync: true });
  // The reader of the log is gone (EPIPE) or its disk is full: the shim must continue to serve calls.
  stream.on('error', () => undefined);
  return stream;
}
