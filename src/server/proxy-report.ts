import { status } from '@grpc/grpc-js';
import type { Counters, Log } from '../observe/index.ts';
import type { SwitchObserver } from './proxy/index.ts';
import { ErrorCode } from './http2/index.ts';
import { loggableError } from '../grpc/index.ts';

const OK: number = status.OK;

export interface SwitchReportOptions {
  readonly log: Log;
  readonly counters: Counters;
  /** Whether calls that only pass leave a line too. */
  readonly logPassedCalls: boolean;
  /** True for the first use of a key: for what is logged once. */
  readonly isFirst: (key: string) => boolean;
}

/** Turns what the switch sees into lines of the log and counts. */
export function switchReport({ log, counters, logPassedCalls, isFirst }: SwitchReportOptions): SwitchObserver {
  let isLost = false;
  return {
    wantsStatus: logPassedCalls,
    connected() {
      if (isLost) log.info({}, 'the backend is back');
      isLost = false;
    },
    backendLost(message) {
      // Clients try again and again: one line for an outage.
      if (!isLost) log.warn({ error: message }, 'the backend is gone; calls end UNAVAILABLE until it is back');
      isLost = true;
    },
    streamOpened: () => undefined,
    streamClosed(path, route, outcome, code, milliseconds) {
      const ms = Math.round(milliseconds * 1000) / 1000;
      // Of an amended call the response is looked at when it is one; of a failed one nobody else hears.
      if (route === 'amend' && code !== undefined && code !== OK) {
        counters.interceptedCall(path, code, milliseconds, milliseconds);
        log.info({ method: path, code: status[code] ?? code, shimMs: 0, backendMs: ms }, 'intercepted call');
      }
      if (route === 'pass') counters.passedCall(path, outcome);
      // A handled call leaves its line where it is handled.
      if (!logPassedCalls || route === 'handle') return;
      log.info(
        { method: path, route, outcome, code: code === undefined ? undefined : (status[code] ?? code), ms },
        'passed call',
      );
    },
    protocolError(side, code, message) {
      const name = nameOf(code);
      counters.protocolError(name);
      log.warn({ side, code: name, error: message }, 'a connection was ended: its peer broke HTTP/2');
    },
    amendSkipped(path, reason, error) {
      counters.failOpen('amend_failed');
      if (!isFirst(`amend ${path} ${reason}`)) return;
      log.warn(
        { method: path, reason, ...(error === undefined ? {} : loggableError(error)) },
        'a response went as it came; logged once',
      );
    },
    pingAnswered: () => undefined,
  };
}

const nameOf = (code: number): string =>
  Object.entries(ErrorCode).find(([, value]) => value === code)?.[0] ?? 'UNKNOWN';
