import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { type AddressInfo, createConnection, type Socket } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { noLog } from '../../src/core/observe/interfaces.ts';
import { MONITORING_LIMITS, type MonitoringLimits } from '../../src/monitoring/limits.ts';
import { createMonitoringServer, type MonitoringServer } from '../../src/monitoring/server.ts';

let server: MonitoringServer;
let asked: number;
const sockets: Socket[] = [];
const port = (): number => (server.http.address() as AddressInfo).port;

async function listening(limits?: MonitoringLimits): Promise<MonitoringServer> {
  const created = createMonitoringServer(
    {
      version: '1.2.3',
      counted: [],
      readiness: () => Promise.resolve({ ready: true, checks: [] }),
      node: () => ({ pods: 0, volumes: { count: 0, size: 0, used: 0 }, unfinished: [], foresight: false }),
      connections: () => 0,
      watchResizes: () => () => undefined,
      refused: () => undefined,
      bypass: () => ({ start: undefined, end: undefined }),
      endpoint: () => 'unknown',
      overview: () => {
        asked += 1;
        return Promise.resolve({ pods: [], recent: [], history: [] });
      },
      log: noLog,
    },
    { isTcp: true },
    limits,
  );
  created.http.listen({ host: '127.0.0.1', port: 0 });
  await once(created.http, 'listening');
  return created;
}

beforeEach(async () => {
  asked = 0;
  server = await listening();
});
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
  server.close();
});

async function statusOf(path: string): Promise<number | undefined> {
  const [response] = (await once(get({ host: '127.0.0.1', port: port(), path, agent: false }), 'response')) as [
    IncomingMessage,
  ];
  response.resume();
  return response.statusCode;
}

test('M4: the status page queries the backend once for many requests over TCP', async () => {
  for (let at = 0; at < 5; at += 1) expect(await statusOf('/')).toBe(200);
  expect(await Promise.all(Array.from({ length: 20 }, () => statusOf('/')))).toEqual(Array(20).fill(200));
  expect(asked).toBe(1);
});

test.each([
  ['sends nothing', ''],
  ['sends its request slowly', 'GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Slow: '],
  ['reads nothing', 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(100)],
])('M4: a client that %s is disconnected when the time of its connection is over', async (_, text) => {
  server.close();
  server = await listening({ ...MONITORING_LIMITS, connectionMs: 100 });
  const socket = createConnection({ port: port(), host: '127.0.0.1' }).pause();
  sockets.push(socket);
  socket.write(text);
  await once(socket.on('error', () => undefined).resume(), 'close');
  const [open] = await new Promise<[number]>((resolve) => server.http.getConnections((__, count) => resolve([count])));
  expect(open).toBe(0);
});

test('M4: clients that send nothing do not lock out other clients', async () => {
  for (let at = 0; at < MONITORING_LIMITS.connections + 8; at += 1) {
    const socket = createConnection({ port: port(), host: '127.0.0.1' }).on('error', () => undefined);
    sockets.push(socket);
    await once(socket, 'connect');
  }
  expect(await statusOf('/livez')).toBe(200);
});
