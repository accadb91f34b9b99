import { MiB } from '../core/quantities/index.ts';

/** Budgets of the log. docs/limits.md lists them. */
export const LOG_LIMITS = {
  /** Bytes of lines that wait for the reader of the log. Lines beyond this are dropped. */
  bufferBytes: MiB,
  /** Lines of one message in one second at the levels warn and error, after a burst of ten times as many. */
  warningsPerSecond: 10,
  /** Lines of one message in one second at the levels debug and info, after a burst of twice as many. */
  linesPerSecond: 1000,
} as const;
