/** Budgets of the server for metrics and health. docs/limits.md lists them. */
export const MONITORING_LIMITS = {
  connections: 32,
  /** How long a connection may last, in milliseconds. */
  connectionMs: 10_000,
  /** How long the status page is cached, in milliseconds: it asks the backend about every container. */
  pageMs: 5000,
  /** Open status pages with live updates. */
  streams: 8,
  /** Maximum duration of a live stream, in milliseconds. The browser connects again. */
  streamAgeMs: 600_000,
  /** Reconnect delay for a page that was closed in favor of another page, in milliseconds. */
  streamRetryMs: 30_000,
  /** Bytes of updates that wait for one page, beyond the first update. */
  streamBytes: 512 * 1024,
  /** Time between two updates of open pages, in milliseconds, if no resize happens. */
  streamMs: 5000,
  /** Least time between two updates, in milliseconds: resizes may follow each other closely. */
  streamPauseMs: 500,
  /** How long the token of a file is used before the file is read again, in milliseconds. */
  tokenMs: 1000,
} as const;

export type MonitoringLimits = Readonly<Record<keyof typeof MONITORING_LIMITS, number>>;
