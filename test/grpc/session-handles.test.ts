import { duplexPair } from 'node:stream';
import { connect } from 'node:http2';
import { once } from 'node:events';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { ServerCredentials } from '@grpc/grpc-js';
import { expect, test } from 'vitest';
import { API_LIMITS, GRPC_LIMITS } from '../../src/grpc/limits.ts';
import { createRawServer } from '../../src/grpc/raw-server.ts';
import { keptHandles } from '../../src/grpc/session-handles.ts';
import { noCounters } from '../../src/observe/index.ts';

test('the native part of an ended session is kept until full collections have passed', async () => {
  const { server } = createRawServer(noCounters, API_LIMITS);
  const injector = server.createConnectionInjector(ServerCredentials.createInsecure());
  const before = keptHandles();
  const session = async (): Promise<void> => {
    const [ours, theirs] = duplexPair();
    injector.injectConnection(ours);
    const client = connect('http://localhost', { createConnection: () => theirs });
    await once(client, 'remoteSettings');
    client.destroy();
    await once(client, 'close');
  };
  for (let count = 0; count < 3; count += 1) await session();
  expect(keptHandles()).toBe(before + 3);
  for (let count = 0; count < GRPC_LIMITS.keptSessions; count += 1) {
    await session();
    expect(keptHandles()).toBeLessThanOrEqual(GRPC_LIMITS.keptSessions);
  }
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  await expect
    .poll(() => {
      collect();
      return keptHandles();
    })
    .toBe(0);
  injector.destroy();
  server.forceShutdown();
});
