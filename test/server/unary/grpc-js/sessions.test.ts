import { once } from 'node:events';
import { connect, createServer, type ServerHttp2Session } from 'node:http2';
import { PerformanceObserver } from 'node:perf_hooks';
import { duplexPair } from 'node:stream';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterAll, expect, test } from 'vitest';
import { noCounters } from '../../../../src/core/observe/counters.ts';
import { createRawServer } from '../../../../src/server/unary/grpc-js/raw-server.ts';
import { keepHandles, keptHandles } from '../../../../src/server/unary/grpc-js/sessions.ts';
import { API_LIMITS, GRPC_LIMITS } from '../../../../src/server/unary/server-budget.ts';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;
const server = createRawServer(noCounters, API_LIMITS);

afterAll(() => server.close());

async function session(): Promise<void> {
  const [ours, theirs] = duplexPair();
  server.accept(ours);
  const client = connect('http://localhost', { createConnection: () => theirs });
  await once(client, 'remoteSettings');
  client.destroy();
  await once(client, 'close');
}

/** Resolves when every observer that exists has seen a full collection. */
async function collected(): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<undefined>();
  const observer = new PerformanceObserver(() => resolve(undefined));
  observer.observe({ entryTypes: ['gc'] });
  collect();
  await promise;
  observer.disconnect();
}

/** Collects garbage until no handle of a session is left. */
const noneKept = (): Promise<void> =>
  expect
    .poll(() => {
      collect();
      return keptHandles();
    })
    .toBe(0);

test('the native part of an ended session is kept until full collections have passed', async () => {
  for (let count = 0; count < GRPC_LIMITS.keptSessions + 3; count += 1) {
    await session();
    expect(keptHandles()).toBeGreaterThan(0);
    expect(keptHandles()).toBeLessThanOrEqual(GRPC_LIMITS.keptSessions);
  }
  await noneKept();
});

test('a session that is open during a full collection counts once', async () => {
  await noneKept();
  await collected();
  const sessions = createServer().on('session', keepHandles);
  const [ours, theirs] = duplexPair();
  const opened = once(sessions, 'session');
  sessions.emit('connection', ours);
  const client = connect('http://localhost', { createConnection: () => theirs });
  const [opposite] = (await opened) as [ServerHttp2Session];
  await collected();
  expect(keptHandles()).toBe(1);
  const ended = once(opposite, 'close');
  client.destroy();
  await ended;
  expect(keptHandles()).toBe(1);
});
