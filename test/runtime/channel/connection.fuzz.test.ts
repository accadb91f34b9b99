import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { isServiceError } from '../../../src/core/grpc.ts';
import { Channel } from '../../../src/runtime/channel/channel.ts';
import { RawServer } from '../../support/http2/raw-server.ts';
import { data, frame, headers, message, OK, RESPONSE, settings, u32 } from '../../support/http2/wire.ts';

const server = new RawServer();
let script: readonly Uint8Array[] = [];

beforeAll(() =>
  server.listen((peer) => {
    void peer.requests().then(async () => {
      for (const bytes of script) {
        peer.send(bytes);
        await new Promise(setImmediate);
      }
      peer.socket.end();
    });
    peer.greet();
  }),
);
afterAll(() => server.remove());

/** Makes two calls to a server that answers with these bytes. Returns how they have ended. */
async function play(bytes: readonly Uint8Array[]): Promise<unknown[]> {
  script = bytes;
  const channel = new Channel(server.path, 100_000, () => undefined);
  const deadline = performance.now() + 10_000;
  const calls = [1, 2].map((size) =>
    channel.call({ path: '/s/M', message: Buffer.alloc(size), metadata: undefined, deadline, signal: undefined }),
  );
  const ends = await Promise.all(calls.map((call) => call.catch((error: unknown) => error)));
  expect(channel.calls).toBe(0);
  channel.close();
  return ends;
}

const octets = fc.uint8Array({ maxLength: 300 });
const anyFrame = fc
  .tuple(fc.integer({ min: 0, max: 12 }), fc.integer({ min: 0, max: 255 }), fc.constantFrom(0, 1, 3, 5), octets)
  .map(([type, flags, id, payload]) => frame(type, flags, id, payload));
const goodFrame = fc.constantFrom(
  headers(1, RESPONSE),
  headers(3, RESPONSE),
  data(1, message(Buffer.from('a'))),
  data(3, message(Buffer.from('b')).subarray(0, 3)),
  headers(1, OK, true),
  headers(3, OK, true),
  settings([3, 1], [4, 10]),
  frame(7, 0, 0, u32(1, 0)),
  frame(8, 0, 0, u32(70_000)),
);
const bytes = fc.array(fc.oneof({ weight: 3, arbitrary: goodFrame }, anyFrame, octets), { maxLength: 12 });

test('any bytes from a server end each call with a response or a gRPC error', async () => {
  await fc.assert(
    fc.asyncProperty(bytes, async (sent) => {
      for (const end of await play(sent)) expect(Buffer.isBuffer(end) || isServiceError(end)).toBe(true);
    }),
    { numRuns: 400 },
  );
});

test('a response with one flipped bit ends each call with a response or a gRPC error', async () => {
  const good = Buffer.concat([
    headers(1, RESPONSE),
    data(1, message(Buffer.from('answer'))),
    headers(1, OK, true),
    headers(3, [...RESPONSE, ...OK], true),
  ]);
  for (let at = 0; at < good.length; at += 1) {
    const wrong = Buffer.from(good);
    wrong[at]! ^= 1 << (at % 8);
    for (const end of await play([wrong])) expect(Buffer.isBuffer(end) || isServiceError(end)).toBe(true);
  }
});
