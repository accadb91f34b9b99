import { Code, type Counters, grpcCodeName, type Log, loggableError } from '../core/index.ts';
import { ErrorCode } from '../http2/index.ts';
import type { ProxyObserver } from './proxy/interception.ts';

export interface ProxyReportOptions {
  readonly log: Log;
  readonly counters: Counters;
  /** Whether forwarded calls are logged too. */
  readonly logPassedCalls: boolean;
  /** Returns true for the first use of a key. Used for messages that are logged once. */
  readonly isFirst: (key: string) => boolean;
}

/** Returns an observer of the proxy that writes its events to the log and the counters. */
export function proxyReport({ log, counters, logPassedCalls, isFirst }: ProxyReportOptions): ProxyObserver {
  let isLost = false;
  return {
    wantsStatus: logPassedCalls,
    connected() {
      if (isLost) log.info({}, 'backend connected again');
      isLost = false;
    },
    backendLost(message) {
      // Clients retry continuously: log one line for each outage.
      if (!isLost)
        log.warn({ error: message }, 'backend connection lost; calls fail with UNAVAILABLE until it is back');
      isLost = true;
    },
    noDescriptor(message) {
      log.error({ error: message }, 'no free file descriptor for a connection to the backend');
    },
    streamOpened: () => undefined,
    streamClosed(path, route, outcome, code, milliseconds) {
      const ms = Math.round(milliseconds * 1000) / 1000;
      // The interceptor logs and counts amended calls that succeed. It never sees one that fails.
      if (route === 'amend' && code !== undefined && code !== Code.OK) {
        counters.interceptedCall(path, code, milliseconds, milliseconds);
        log.info({ method: path, code: grpcCodeName(code), shimMs: 0, backendMs: ms }, 'intercepted call');
      }
      if (route === 'pass' || route === 'amend-each') counters.passedCall(path, outcome);
      // The local server logs handled calls.
      if (!logPassedCalls || route === 'handle') return;
      log.info(
        { method: path, route, outcome, code: code === undefined ? undefined : grpcCodeName(code), ms },
        'forwarded call',
      );
    },
    protocolError(side, code, message) {
      const name = nameOf(code);
      counters.protocolError(name);
      log.warn({ side, code: name, error: message }, 'connection closed after HTTP/2 protocol error');
    },
    amendSkipped(path, reason, error) {
      counters.failOpen('amend_failed');
      if (!isFirst(`amend ${path} ${reason}`)) return;
      const fields = error === undefined ? {} : loggableError(error);
      log.warn({ method: path, reason, ...fields }, 'response forwarded without amendment; logged once');
    },
    pingAnswered: () => undefined,
    refused: (budget) => counters.refused(budget),
  };
}

const nameOf = (code: number): string =>
  Object.entries(ErrorCode).find(([, value]) => value === code)?.[0] ?? 'UNKNOWN';
