import { beforeEach, expect, test } from 'vitest';
import { createCounters } from '../../src/core/observe/counters.ts';
import { oncePerKey } from '../../src/core/observe/failure-log.ts';
import type { Log } from '../../src/core/observe/interfaces.ts';
import { ErrorCode } from '../../src/http2/errors.ts';
import { proxyReport } from '../../src/server/proxy-report.ts';

let lines: object[];
let counters = createCounters();
beforeEach(() => {
  lines = [];
  counters = createCounters();
});

function report(logPassedCalls = false) {
  const at =
    (level: string): Log['info'] =>
    (fields, msg) =>
      void lines.push({ level, ...fields, msg });
  const log: Log = { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
  return proxyReport({ log, counters, logPassedCalls, isFirst: oncePerKey() });
}

test('logs forwarded calls only if configured, and never logs handled calls', () => {
  report().streamClosed('/a/B', 'pass', 'answered', undefined, 1);
  expect(lines).toEqual([]);
  const configured = report(true);
  expect([report().wantsStatus, configured.wantsStatus]).toEqual([false, true]);
  configured.streamClosed('/a/B', 'pass', 'answered', 5, 1.23456);
  configured.streamClosed('/a/C', 'amend', 'cancelled', undefined, 2);
  configured.streamClosed('/a/D', 'handle', 'answered', 0, 3);
  expect(lines).toEqual([
    {
      level: 'info',
      method: '/a/B',
      route: 'pass',
      outcome: 'answered',
      code: 'NOT_FOUND',
      ms: 1.235,
      msg: 'forwarded call',
    },
    { level: 'info', method: '/a/C', route: 'amend', outcome: 'cancelled', ms: 2, msg: 'forwarded call' },
  ]);
});

test('logs a failed amended call as intercepted; the interceptor logs a successful one', () => {
  report().streamClosed('/a/RunPod', 'amend', 'answered', 2, 7.5);
  report().streamClosed('/a/RunPod', 'amend', 'answered', 0, 7.5);
  expect(lines).toEqual([
    { level: 'info', method: '/a/RunPod', code: 'UNKNOWN', shimMs: 0, backendMs: 7.5, msg: 'intercepted call' },
  ]);
  expect(counters.snapshot().interceptedCalls).toMatchObject([{ method: '/a/RunPod', code: 'UNKNOWN', count: 1 }]);
});

test('counts forwarded calls, but not amended and handled ones', () => {
  const observer = report();
  observer.streamClosed('/a/B', 'pass', 'answered', undefined, 1);
  observer.streamClosed('/a/B', 'pass', 'cancelled', undefined, 1);
  observer.streamClosed('/a/C', 'amend', 'answered', 0, 1);
  observer.streamClosed('/a/D', 'handle', 'answered', 0, 1);
  expect(counters.snapshot().passedCalls).toBe(2);
});

test('logs two lines for an outage of the backend, regardless of the number of retries', () => {
  const observer = report();
  observer.connected();
  for (let attempt = 0; attempt < 100; attempt += 1) observer.backendLost('connect ECONNREFUSED');
  observer.connected();
  observer.connected();
  observer.backendLost('connect ENOENT');
  expect(lines).toMatchObject([
    { level: 'warn', error: 'connect ECONNREFUSED' },
    { level: 'info', msg: 'backend connected again' },
    { level: 'warn', error: 'connect ENOENT' },
  ]);
});

test('counts protocol errors by the name of the error code', () => {
  const observer = report();
  observer.protocolError('client', 1, 'bad frame');
  observer.protocolError('backend', 9, 'bad block');
  observer.protocolError('client', 4711, '?');
  expect(counters.snapshot().protocolErrors).toEqual({ PROTOCOL_ERROR: 1, COMPRESSION_ERROR: 1, UNKNOWN: 1 });
  expect(lines[0]).toMatchObject({ level: 'warn', side: 'client', code: 'PROTOCOL_ERROR', error: 'bad frame' });
});

test('starts the count of each protocol error code at 0, so that an alert sees the first error of each', () => {
  const series = (): number => {
    const family = counters.families.find(({ description: { name } }) => name.endsWith('_protocol_errors_total'));
    return [...(family?.series() ?? [])].length;
  };
  const initial = series();
  // These codes end a stream, or end a connection without an error.
  const others: readonly number[] = [ErrorCode.NO_ERROR, ErrorCode.REFUSED_STREAM, ErrorCode.CANCEL];
  const codes = Object.values(ErrorCode).filter((code) => !others.includes(code));
  for (const code of [...codes, 4711]) report().protocolError('client', code, 'bad frame');
  expect([initial, series()]).toEqual([codes.length + 1, codes.length + 1]);
});

test('counts each response that could not be amended, and logs the first one without the error message', () => {
  const observer = report();
  for (let call = 0; call < 3; call += 1) observer.amendSkipped('/a/B', 'failed', new TypeError('PASSWORD=hunter2'));
  observer.amendSkipped('/a/B', 'slow', undefined);
  expect(counters.snapshot().failOpen).toEqual({ amend_failed: 4 });
  expect(lines).toMatchObject([
    { level: 'warn', method: '/a/B', reason: 'failed', error: 'TypeError' },
    { level: 'warn', method: '/a/B', reason: 'slow' },
  ]);
  expect(JSON.stringify(lines)).not.toContain('hunter2');
});
