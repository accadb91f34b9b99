import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer as createHttp2Server } from 'node:http2';
import { type Server, type Socket, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Backend } from '../../src/runtime/backend.ts';

const folder = mkdtempSync(join(tmpdir(), 'backend-lost-'));
const path = join(folder, 'b.sock');
const NOTHING = Buffer.alloc(0);
let server: Server;
let backend: Backend;

beforeAll(async () => {
  const http2 = createHttp2Server();
  let connection: Socket | undefined;
  http2.on('stream', (stream, { ':path': method }) => {
    stream.on('error', () => undefined);
    if (method === '/test/Begun') stream.respond({ ':status': 200, 'content-type': 'application/grpc' });
    // In the middle of the call, as a backend that is killed.
    setImmediate(() => connection?.destroy());
  });
  server = createServer((socket) => {
    connection = socket;
    http2.emit('connection', socket);
  }).listen(path);
  await once(server, 'listening');
  backend = new Backend(`unix:${path}`);
});
afterAll(() => {
  backend.close();
  server.close();
  rmSync(folder, { recursive: true });
});

describe('a call that loses its backend', () => {
  const lost = { code: 14, details: 'error reading from server: EOF' };

  test.each(['/test/Unanswered', '/test/Begun'])(
    'a call of %s that loses its backend fails with the error message of the grpc-go client',
    async (method) => {
      await expect(backend.call(method, NOTHING)).rejects.toMatchObject(lost);
    },
  );
});
