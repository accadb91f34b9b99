import { once } from 'node:events';
import * as http2 from 'node:http2';
import { Duplex, PassThrough } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { localPair } from '../../../src/server/proxy/pair-transport.ts';
import { collectUncaught } from '../../support/uncaught.ts';

/** Ends a client's half in the middle of a call, lets the server answer, and returns the errors that nobody catches. */
async function answerAfterEnd([server, client]: readonly [Duplex, Duplex]): Promise<unknown[]> {
  const errors = collectUncaught();
  const http2Server = http2.createServer();
  http2Server.emit('connection', server);
  // The client's session has another stream, so that the half can end without it.
  const incoming = new PassThrough();
  client.on('data', (bytes: Buffer) => incoming.write(bytes));
  const session = http2.connect('http://localhost', {
    createConnection: () => Duplex.from({ readable: incoming, writable: client }),
  });
  session.on('error', () => undefined);
  const request = session.request({ ':method': 'POST', ':path': '/' });
  request.on('error', () => undefined);
  const [stream] = (await once(http2Server, 'stream')) as [http2.ServerHttp2Stream];
  stream.on('error', () => undefined);
  client.destroy();
  for (let index = 0; index < 10; index += 1) await turn();
  if (!stream.destroyed) stream.respond({ ':status': 200 }, { endStream: true });
  for (let index = 0; index < 10; index += 1) await turn();
  session.destroy();
  return errors;
}

test('an answer after the client has destroyed its half does not end the process', async () => {
  expect(await answerAfterEnd(localPair())).toEqual([]);
});

test('bytes arrive in both directions, and the half of the server ends with that of the client', async () => {
  const [server, client] = localPair();
  server.write('to the client');
  client.write('to the server');
  expect([String(await once(client, 'data')), String(await once(server, 'data'))]).toEqual([
    'to the client',
    'to the server',
  ]);
  client.destroy();
  expect(server.destroyed).toBe(true);
});
