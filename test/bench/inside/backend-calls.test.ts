import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import net, { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { recordBackendCalls } from '../../../bench/inside/backend-calls.ts';
import type { Span } from '../../../bench/inside/notes.ts';

const folder = mkdtempSync(join(tmpdir(), 'backend-calls-'));
afterAll(() => rmSync(folder, { recursive: true }));

const backend = join(folder, 'backend');
const spans: Span[] = [];
let now = 0;
recordBackendCalls(backend, () => (now += 1), spans);

/** A HEADERS frame of stream 1. */
const headers = (flags: number): Buffer => Buffer.from([0, 0, 2, 1, flags, 0, 0, 0, 1, 0x88, 0x88]);

test('a call lasts from the write of its HEADERS to the HEADERS that end its answer', async () => {
  const server = net.createServer((client) => {
    client.once('data', () => client.write(Buffer.concat([headers(4), headers(5)])));
  });
  server.listen(backend);
  await once(server, 'listening');
  const read: Buffer[] = [];
  // By name, as a client in a bundle imports it.
  const socket = connect({
    path: backend,
    onread: {
      buffer: Buffer.alloc(1024),
      callback: (size, bytes) => {
        read.push(Buffer.from(bytes.subarray(0, size)));
        socket.end();
        return true;
      },
    },
  });
  socket.write(Buffer.concat([Buffer.alloc(24), headers(4)]));
  socket.resume();
  await once(socket, 'close');
  server.close();
  expect(Buffer.concat(read)).toEqual(Buffer.concat([headers(4), headers(5)]));
  expect(spans.splice(0)).toEqual([[1, 2]]);
});

test('a connection to another socket is not recorded', async () => {
  const other = join(folder, 'other');
  const server = net.createServer((client) => {
    client.once('data', () => client.end(headers(5)));
  });
  server.listen(other);
  await once(server, 'listening');
  const socket = connect(other);
  socket.resume();
  socket.write(Buffer.concat([Buffer.alloc(24), headers(4)]));
  await once(socket, 'close');
  server.close();
  expect(spans).toEqual([]);
});
