import { describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { HEADERS_LIMIT } from '../../../src/server/proxy/client-side.ts';
import { ReferenceEncoder } from '../../support/http2/reference-hpack.ts';
import {
  END_HEADERS,
  END_STREAM,
  HEADERS,
  data,
  frame,
  headers,
  message,
  openProxy,
  parseFrames,
  request,
} from '../../support/http2/wire.ts';

const STREAMS = 400;

/** One read of requests whose fields are references to one large field in the client's dynamic table. */
function bombs(path: string): Buffer {
  const encoder = new ReferenceEncoder(4096);
  const field = { name: 'x', value: 'a'.repeat(3500), index: true };
  const fields = request(
    path,
    Array.from({ length: 70 }, () => field),
  );
  const frames = Array.from({ length: STREAMS }, (_, at) =>
    frame(HEADERS, END_HEADERS | END_STREAM, 2 * at + 3, encoder.encode(fields)),
  );
  return Buffer.concat(frames);
}

const streamsIn = (bytes: Buffer): number => parseFrames(bytes).frames.filter(({ type }) => type === HEADERS).length;

describe('header blocks that refer to a large field again and again', () => {
  const read = bombs('/pass/A');

  test('hundreds of header blocks that refer to a large field fit in one read', () => {
    expect(read.length).toBeLessThan(65_536);
  });

  test.each(['/pass/A', '/handle/A', '/amend/A'])(
    'header blocks that refer to a large field wait until the server has taken earlier ones: %s',
    (path) => {
      const proxy = openProxy();
      proxy.client.send(headers(1, request(path), true));
      const server = path.startsWith('/handle') ? proxy.locals[0]! : proxy.backend;
      server.takeBytes();
      const write = server.write.bind(server);
      server.write = (slices, size) => {
        server.backlog += size;
        write(slices, size);
      };
      proxy.client.send(bombs(path));
      let largest = 0;
      let seen = 0;
      // 93 MiB were written at once before.
      for (let round = 0; round < STREAMS && seen < STREAMS; round += 1) {
        const written = server.takeBytes();
        largest = Math.max(largest, written.length);
        seen += streamsIn(written);
        server.backlog = 0;
        server.events.drained();
      }
      expect([seen, largest < MiB, proxy.client.paused]).toEqual([STREAMS, true, false]);
    },
  );

  test('header blocks that refer to a large field do not wait for a backend that is gone', () => {
    const proxy = openProxy();
    proxy.backend.backlog = 1;
    proxy.client.send(bombs('/pass/A'));
    expect(proxy.client.paused).toBe(true);
    proxy.backend.events.closed(undefined);
    expect(proxy.client.paused).toBe(false);
  });
});

test('headers of calls that turn out to be compressed wait until the local server has taken earlier ones', () => {
  const proxy = openProxy({ handle: () => undefined });
  // A client sends only some bytes of these headers.
  const encoder = new ReferenceEncoder(4096);
  const large = ['a', 'b'].map((name) => ({ name, value: name.repeat(1700), index: true }));
  for (let at = 0; at < STREAMS; at += 1)
    proxy.client.send(frame(HEADERS, END_HEADERS, 2 * at + 1, encoder.encode(request('/handle/A', large))));
  const ends = Array.from({ length: STREAMS }, (_, at) => data(2 * at + 1, message(Buffer.of(7), true), true));
  proxy.client.send(...ends.slice(0, 1));
  const local = proxy.locals[0]!;
  local.takeBytes();
  local.backlog = 1;
  proxy.client.send(...ends.slice(1));
  expect([proxy.core.client.waits, proxy.client.paused]).toEqual([true, true]);
  const first = local.takeBytes().length;
  expect([first > HEADERS_LIMIT, first < HEADERS_LIMIT + 16_384]).toEqual([true, true]);
  let seen = first;
  for (let round = 0; round < STREAMS && proxy.core.client.waits; round += 1) {
    local.backlog = 0;
    local.events.drained();
    seen += local.takeBytes().length;
  }
  expect(seen).toBeGreaterThan((STREAMS - 1) * 3400);
});
