import { once } from 'node:events';
import type { Server } from 'node:http';
import { createServer, Agent as PlainAgent } from 'node:http';
import type { RequestOptions } from 'node:https';
import { Agent as TlsAgent } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import * as z from 'zod/mini';
import { apiOf, parsedResponse, readText } from '../../../src/kubernetes/client/api.ts';

describe('time limits of requests', () => {
  let server: Server;
  const sockets: Socket[] = [];

  beforeEach(async () => {
    server = createServer()
      .on('connection', (socket: Socket) => sockets.push(socket))
      .listen(0, '127.0.0.1');
    await once(server, 'listening');
  });

  afterEach(async () => {
    for (const socket of sockets.splice(0)) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });

  const port = (): number => (server.address() as AddressInfo).port;

  /** Reads a list of pods, with a limit of 50 ms without data. */
  async function list(host: string, options: RequestOptions = {}): Promise<string> {
    const api = apiOf(() => Promise.resolve({ server: new URL(`${host}:${port()}`), options }));
    const response = await api({
      method: 'GET',
      path: '/api/v1/pods',
      idleMs: 50,
      signal: AbortSignal.timeout(120_000),
    });
    return readText(response, 1000);
  }

  // A connection from a kubeconfig has an agent of its own, which has no timeout.
  test.each([
    ['http', new PlainAgent()],
    ['https', new TlsAgent()],
  ])('a connection by %s that hangs fails after the idle timeout', async (scheme, agent) => {
    // The lookup never resolves. A server whose packets are lost has the same effect: the connect does not end.
    const lookup = (): void => undefined;
    await expect(list(`${scheme}://api.example`, { lookup, agent })).rejects.toThrow('no data for 50 ms');
  });

  test('a proxy that does not connect fails after the idle timeout', async () => {
    const agent = new PlainAgent();
    agent.createConnection = () => undefined;
    await expect(list('http://127.0.0.1', { agent })).rejects.toThrow('no data for 50 ms');
  });

  test('a TLS handshake that hangs fails after the idle timeout', async () => {
    server.removeAllListeners('connection');
    server.on('connection', (socket: Socket) => sockets.push(socket));
    await expect(list('https://127.0.0.1')).rejects.toThrow('no data for 50 ms');
  });

  test('a request without a response fails after the idle timeout', async () => {
    await expect(list('http://127.0.0.1')).rejects.toThrow('no data for 50 ms');
  });
});

const schema = z.object({ kind: z.literal('Node') });

test('a response is parsed by its schema', () => {
  expect(parsedResponse(schema, '{"kind":"Node"}', 'a node')).toEqual({ kind: 'Node' });
});

test.each(['<html>secret</html>', '{"kind":"secret"}'])(
  'the error about the invalid response %s does not quote it',
  (text) => {
    expect(() => parsedResponse(schema, text, 'a node')).toThrow(/^the response is not a node$/);
  },
);
