import { type DestinationStream, destination, pino, stdTimeFunctions } from 'pino';
import type { Log } from './interfaces.ts';

export interface LogOptions {
  /** The lowest level that is written. */
  readonly level: 'trace' | 'debug' | 'info' | 'warn' | 'error';
  /** Where lines go; stderr without it, since stdout is for what the user asked to be printed. */
  readonly destination?: DestinationStream;
}

/**
 * One JSON object a line: `level` by name, `time` in ISO 8601, the fields, `msg`. Written synchronously: a worker or a
 * buffer would lose the last lines before a crash, the ones that are needed.
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
  // Whoever read our log has gone (EPIPE), or its disk is full: calls must go on nevertheless.
  stream.on('error', () => undefined);
  return stream;
}
