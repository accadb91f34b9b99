import { performance } from 'node:perf_hooks';
import { type DestinationStream, pino, stdTimeFunctions } from 'pino';
import { BoundedWriter } from './bounded-writer.ts';
import type { Log, LogDrop, LogFields } from './interfaces.ts';
import { type LineLevel, LineRates } from './line-rates.ts';
import { leadsToJournal, withPriority } from './journal-priority.ts';
import { LOG_LIMITS } from './log-limits.ts';

export interface LogOptions {
  /** Lowest level to write. */
  readonly level: 'trace' | 'debug' | 'info' | 'warn' | 'error';
  /** Destination of the lines. Default: stderr, because stdout is for the output of --help and --version. */
  readonly destination?: DestinationStream;
  /** Called for each line that is not written. */
  readonly dropped?: (drop: LogDrop) => void;
  /** Milliseconds. */
  readonly now?: () => number;
}

/**
 * Creates the log: one JSON object per line with `level` as a name, `time` in ISO 8601, the fields and `msg`. It never waits for its
 * reader ({@link BoundedWriter}), and limits the lines of each message ({@link LineRates}).
 */
export function createLog(options: LogOptions): Log {
  const { level, dropped = () => undefined, now = () => performance.now() } = options;
  const lines = pino(
    {
      level,
      base: null,
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (name) => ({ level: name }) },
    },
    options.destination ?? standardError(() => dropped('slow_reader')),
  );
  const rates = new LineRates(now);
  const writing = (of: LineLevel) => {
    if (!lines.isLevelEnabled(of)) return () => undefined;
    return (fields: LogFields, message: string): void => {
      const admitted = rates.admit(of, message);
      if (admitted === undefined) {
        dropped('rate');
        return;
      }
      if (admitted.suppressed > 0) lines.warn({ message, count: admitted.suppressed }, 'log lines suppressed');
      lines[of](fields, message);
    };
  };
  return { debug: writing('debug'), info: writing('info'), warn: writing('warn'), error: writing('error') };
}

/** stderr: with the priority of each line if it is the journal. */
function standardError(dropped: () => void): DestinationStream {
  const writer = new BoundedWriter(process.stderr, LOG_LIMITS.bufferBytes, dropped);
  if (!leadsToJournal(process.stderr.fd)) return writer;
  return { write: (line) => writer.write(withPriority(line)) };
}
