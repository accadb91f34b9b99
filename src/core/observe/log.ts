import { performance } from 'node:perf_hooks';
import type { Writable } from 'node:stream';
import { type DestinationStream, pino, stdTimeFunctions } from 'pino';
import { MiB } from '../quantities/sizes.ts';
import type { Log, LogDrop, LogFields } from './interfaces.ts';
import { leadsToJournal, withPriority } from './journal-priority.ts';

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
 * Creates the log: one JSON object per line with `level` as a name, `time` in ISO 8601, the fields and `msg`. It never
 * waits for its reader ({@link BoundedWriter}), and limits the lines of each message ({@link LineRates}).
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

/** Budgets of the log. docs/limits.md lists them. */
export const LOG_LIMITS = {
  /** Bytes of lines that wait for the reader of the log. Lines beyond this are dropped. */
  bufferBytes: MiB,
  /** Lines of one message in one second at the levels warn and error, after a burst of ten times as many. */
  warningsPerSecond: 10,
  /** Lines of one message in one second at the levels debug and info, after a burst of twice as many. */
  linesPerSecond: 1000,
} as const;

type LineLevel = 'debug' | 'info' | 'warn' | 'error';

const RATES: Readonly<Record<LineLevel, { readonly perSecond: number; readonly burst: number }>> = {
  debug: { perSecond: LOG_LIMITS.linesPerSecond, burst: 2 * LOG_LIMITS.linesPerSecond },
  info: { perSecond: LOG_LIMITS.linesPerSecond, burst: 2 * LOG_LIMITS.linesPerSecond },
  warn: { perSecond: LOG_LIMITS.warningsPerSecond, burst: 10 * LOG_LIMITS.warningsPerSecond },
  error: { perSecond: LOG_LIMITS.warningsPerSecond, burst: 10 * LOG_LIMITS.warningsPerSecond },
};

/** The lines of one message. */
interface Message {
  /** Lines that may be written now. */
  allowed: number;
  /** Milliseconds. */
  at: number;
  suppressed: number;
}

/** Limits the rate of log lines for each message. Messages are fixed phrases, so their number is bounded. */
class LineRates {
  readonly #messages = new Map<string, Message>();

  /** @param now milliseconds */
  constructor(private readonly now: () => number) {}

  /** Whether a line may be written. If so, returns how many lines of this message were suppressed before it. */
  admit(level: LineLevel, text: string): { readonly suppressed: number } | undefined {
    const { perSecond, burst } = RATES[level];
    const now = this.now();
    let message = this.#messages.get(text);
    if (message === undefined) this.#messages.set(text, (message = { allowed: burst, at: now, suppressed: 0 }));
    message.allowed = Math.min(burst, message.allowed + ((now - message.at) * perSecond) / 1000);
    message.at = now;
    if (message.allowed < 1) {
      message.suppressed += 1;
      return undefined;
    }
    message.allowed -= 1;
    const { suppressed } = message;
    message.suppressed = 0;
    return { suppressed };
  }
}

/**
 * Writes the lines of the log without ever waiting for their reader. A line that the kernel takes at once is written
 * when this returns, so that the last lines before a crash are not lost. Other lines wait in memory, up to a limit.
 */
export class BoundedWriter {
  /**
   * @param limit bytes that may wait
   * @param dropped called for each line that is not written
   */
  constructor(
    private readonly stream: Writable,
    private readonly limit: number,
    private readonly dropped: () => void,
  ) {
    // The reader of the log is gone (EPIPE) or its disk is full: the shim must continue to serve calls.
    stream.on('error', () => undefined);
  }

  write(line: string): void {
    if (this.stream.writable && this.stream.writableLength + line.length <= this.limit) this.stream.write(line);
    else this.dropped();
  }
}
