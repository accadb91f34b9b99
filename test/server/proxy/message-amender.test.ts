import fc from 'fast-check';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { ErrorCode } from '../../../src/http2/errors.ts';
import type { TestProxy, TestProxyOptions } from '../../support/http2/wire.ts';
import {
  ACK,
  DATA,
  data,
  dataOf,
  frame,
  HEADERS,
  headers,
  holdingUpTo,
  message,
  OK,
  openProxy,
  PADDED,
  PING,
  RESPONSE,
  RST_STREAM,
  request,
  rst,
  settled,
  typesOf,
  WINDOW_UPDATE,
  windowUpdate,
} from '../../support/http2/wire.ts';

const PATH = '/each/GetContainerEvents';
const APPENDED = Buffer.from('+kernel');

interface Watch extends TestProxy {
  /** The messages that were passed to the amendment, as text. */
  readonly asked: string[];
  /** Answers the waiting message. */
  answer(amended: Buffer | undefined): Promise<void>;
  refuse(): Promise<void>;
}

/** A proxy with a stream whose messages are amended: later if their text begins with `slow`, otherwise at once. */
function watching(options: TestProxyOptions = {}, ...clientSettings: [number, number][]): Watch {
  const asked: string[] = [];
  const waiting: { resolve: (amended: Buffer | undefined) => void; reject: (error: Error) => void }[] = [];
  const amendMessage = (_: string, bytes: Uint8Array): Buffer | undefined | Promise<Buffer | undefined> => {
    const text = Buffer.from(bytes).toString();
    asked.push(text);
    if (text.startsWith('throw')) throw new Error('no');
    if (text.startsWith('same')) return undefined;
    if (!text.startsWith('slow')) return Buffer.concat([bytes, APPENDED]);
    return new Promise((resolve, reject) => waiting.push({ resolve, reject }));
  };
  const proxy = openProxy({ amendMessage, ...options }, ...clientSettings);
  proxy.client.send(headers(1, request(PATH)), data(1, message(Buffer.alloc(0)), true));
  proxy.backend.take();
  proxy.backend.send(headers(1, RESPONSE));
  expect(typesOf(proxy.client.take())).toEqual([HEADERS]);
  return Object.assign(proxy, {
    asked,
    answer: (amended: Buffer | undefined) => {
      waiting.shift()!.resolve(amended);
      return settled();
    },
    refuse: () => {
      waiting.shift()!.reject(new Error('no'));
      return settled();
    },
  });
}

const sent = (text: string, compressed = false): Buffer => message(Buffer.from(text), compressed);
const amended = (text: string): Buffer => message(Buffer.concat([Buffer.from(text), APPENDED]));
const skips = (proxy: TestProxy): string[] => proxy.events.filter((event) => event.startsWith('skipped'));

afterEach(() => void vi.useRealTimers());

describe('A13: a stream whose messages are amended', () => {
  test('each message of a stream is amended and sent when it arrives, while the stream stays open', () => {
    const proxy = watching();
    for (const text of ['first', 'second', 'third']) {
      proxy.backend.send(data(1, sent(text)));
      expect(dataOf(proxy.client.take(), 1)).toEqual(amended(text));
      expect(proxy.core.held.total).toBe(0);
    }
    proxy.backend.send(headers(1, OK, true));
    expect(typesOf(proxy.client.take())).toEqual([HEADERS]);
    expect(proxy.events).toEqual([`${PATH} amend-each answered 0`]);
  });

  test('a message that the amendment does not change is sent as received', () => {
    const proxy = watching();
    proxy.backend.send(data(1, Buffer.concat([sent('same'), sent('first'), sent('')])));
    expect(dataOf(proxy.client.take(), 1)).toEqual(Buffer.concat([sent('same'), amended('first'), amended('')]));
    expect(skips(proxy)).toEqual([]);
  });

  const kinds = fc.constantFrom('now', 'same', 'slow', 'throw', 'reject', 'compressed', 'long');
  const size = fc.oneof(fc.nat(30), fc.nat(3000));
  test('KEP-1287: each message of a stream is amended, however its bytes arrive; one that cannot be is forwarded as received and counted', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.record({ kind: kinds, size }), { maxLength: 12 }),
        fc.array(fc.record({ length: fc.integer({ min: 0, max: 4000 }), padding: fc.nat(9) }), { minLength: 1 }),
        fc.constantFrom('trailers', 'data'),
        async (messages, frames, end) => {
          const contents = messages.map(({ kind, size: length }, index) => {
            const text = `${kind === 'reject' ? 'slow-reject' : kind}${index}:`;
            return Buffer.concat([Buffer.from(text), Buffer.alloc(kind === 'long' ? 5000 : length, index)]);
          });
          const wire = contents.map((content, index) => message(content, messages[index]!.kind === 'compressed'));
          const proxy = watching({ responseLimit: 4500, readAhead: MiB });
          const bytes = Buffer.concat(wire);
          const cuts = frames.some(({ length }) => length > 0) ? frames : [{ length: 7, padding: 0 }];
          for (let at = 0, index = 0; at < bytes.length; index += 1) {
            const { length, padding } = cuts[index % cuts.length]!;
            const part = bytes.subarray(at, at + length);
            const padded = Buffer.concat([Buffer.of(padding), part, Buffer.alloc(padding)]);
            proxy.backend.send(padding > 0 ? frame(DATA, PADDED, 1, padded) : data(1, part));
            at += length;
          }
          proxy.backend.send(end === 'data' ? data(1, Buffer.alloc(0), true) : headers(1, OK, true));
          for (const { kind } of messages) {
            await settled();
            if (kind === 'reject') await proxy.refuse();
            if (kind === 'slow') await proxy.answer(Buffer.from('later'));
          }
          proxy.client.send(windowUpdate(0, 1_000_000), windowUpdate(1, 1_000_000));
          const expected = contents.map((content, index) => {
            const { kind } = messages[index]!;
            if (kind === 'now') return message(Buffer.concat([content, APPENDED]));
            return kind === 'slow' ? sent('later') : wire[index]!;
          });
          const seen = proxy.client.take();
          expect(dataOf(seen, 1).equals(Buffer.concat(expected))).toBe(true);
          expect(seen.at(-1)!.flags & 1).toBe(1);
          const unusable = messages.filter(({ kind }) => kind === 'compressed' || kind === 'long').length;
          const failed = messages.filter(({ kind }) => kind === 'throw' || kind === 'reject').length;
          expect(skips(proxy).toSorted()).toEqual([
            ...Array<string>(failed).fill(`skipped ${PATH} failed`),
            ...Array<string>(unusable).fill(`skipped ${PATH} response`),
          ]);
          expect([proxy.core.held.total, proxy.core.streams.running]).toEqual([0, 0]);
        },
      ),
      { numRuns: 300 },
    );
  }, 60_000);
});

describe('an amendment that waits', () => {
  test('later messages and trailers wait for an earlier amendment and follow in order', async () => {
    const proxy = watching();
    proxy.backend.send(data(1, Buffer.concat([sent('slow 1'), sent('second')])), data(1, sent('slow 3')));
    proxy.backend.send(headers(1, OK, true));
    await settled();
    expect([proxy.client.take(), proxy.asked]).toEqual([[], ['slow 1']]);
    await proxy.answer(Buffer.from('first'));
    expect(dataOf(proxy.client.take(), 1)).toEqual(Buffer.concat([sent('first'), amended('second')]));
    expect(proxy.asked).toEqual(['slow 1', 'second', 'slow 3']);
    await proxy.answer(undefined);
    const seen = proxy.client.take();
    expect(dataOf(seen, 1)).toEqual(sent('slow 3'));
    expect(seen.at(-1)!.type).toBe(HEADERS);
    expect(proxy.core.streams.running).toBe(0);
  });

  test('a message whose amendment takes too long is sent as received, and later ones are amended', async () => {
    vi.useFakeTimers();
    const proxy = watching({ amendTimeout: 2000 });
    proxy.backend.send(data(1, sent('slow 1')), data(1, sent('second')));
    await settled();
    vi.advanceTimersByTime(1999);
    expect(proxy.client.take()).toEqual([]);
    vi.advanceTimersByTime(1);
    await settled();
    expect(dataOf(proxy.client.take(), 1)).toEqual(Buffer.concat([sent('slow 1'), amended('second')]));
    await proxy.answer(Buffer.from('late'));
    expect(proxy.client.take()).toEqual([]);
    expect(skips(proxy)).toEqual([`skipped ${PATH} slow`]);
  });

  test('while an amendment waits, the backend gets no more window of the stream than the client allows', async () => {
    const proxy = watching({}, [4, 1000]);
    proxy.backend.send(data(1, Buffer.concat([sent('slow 1'), Buffer.alloc(900)])));
    expect(proxy.backend.take().filter(({ id }) => id !== 0)).toEqual([]);
    await proxy.answer(undefined);
    proxy.client.send(rst(1, ErrorCode.CANCEL));
  });

  test('a client that cancels during an amendment receives nothing more, and held bytes occupy no window', async () => {
    const proxy = watching();
    const bytes = Buffer.concat([sent('slow 1'), sent('second').subarray(0, 7)]);
    proxy.backend.send(data(1, bytes));
    proxy.client.send(rst(1, ErrorCode.CANCEL));
    const seen = proxy.backend.take();
    expect(typesOf(seen)).toEqual([WINDOW_UPDATE, RST_STREAM]);
    expect([seen[0]!.id, seen[0]!.payload.readUInt32BE(0)]).toEqual([0, bytes.length]);
    await proxy.answer(Buffer.from('late'));
    expect(proxy.client.take()).toEqual([]);
    expect(proxy.core.held.total).toBe(0);
  });

  test('the loss of the backend leads to UNAVAILABLE after the messages that have arrived', async () => {
    const proxy = watching();
    proxy.backend.send(data(1, Buffer.concat([sent('slow 1'), sent('second')])));
    proxy.backend.events.closed(undefined);
    expect(dataOf(proxy.client.take(), 1)).toHaveLength(0);
    await proxy.answer(Buffer.from('first'));
    const seen = proxy.client.take();
    expect(dataOf(seen, 1)).toEqual(Buffer.concat([sent('first'), amended('second')]));
    expect(String(seen.at(-1)!.payload)).toMatch(/grpc-status.*14/s);
    expect(proxy.client.ended).toBe(true);
  });
});

describe('a stream that stays open', () => {
  test('KEP-1287: a stream of events holds no memory and no timer between messages', async () => {
    vi.useFakeTimers();
    const proxy = watching();
    proxy.backend.send(data(1, sent('slow 1')));
    await settled();
    expect(vi.getTimerCount()).toBe(1);
    await proxy.answer(Buffer.from('first'));
    proxy.backend.send(data(1, sent('second')));
    expect([vi.getTimerCount(), proxy.core.held.total]).toEqual([0, 0]);
    expect(proxy.core.streams.get(1)!.down.queue).toEqual([]);
    const hours = 10 * 3_600_000;
    vi.advanceTimersByTime(hours);
    proxy.client.take();
    proxy.backend.send(data(1, sent('third')));
    expect(dataOf(proxy.client.take(), 1)).toEqual(amended('third'));
  });

  test('a shutdown ends the stream with UNAVAILABLE after the received messages', async () => {
    let answer: (amended: Buffer) => void = () => undefined;
    const proxy = openProxy({ amendMessage: () => new Promise<Buffer>((resolve) => (answer = resolve)) });
    proxy.client.send(headers(1, request('/each/Watch'), true));
    proxy.backend.send(headers(1, RESPONSE), data(1, sent('slow')));
    proxy.core.shutdown();
    await settled();
    const ping = proxy.client.take().find(({ type }) => type === PING)!;
    proxy.client.send(frame(PING, ACK, 0, ping.payload));
    expect(proxy.client.ended).toBe(false);
    answer(Buffer.from('done'));
    await settled();
    const seen = proxy.client.take();
    expect(dataOf(seen, 1)).toEqual(sent('done'));
    expect(String(seen.at(-1)!.payload)).toMatch(/grpc-status.*14/s);
    expect(proxy.client.ended).toBe(true);
  });
});

describe('a stream that ends within a message', () => {
  test.each<[how: string, end: Buffer]>([
    ['trailers', headers(1, OK, true)],
    ['a reset', rst(1, 2)],
    ['the last DATA', data(1, Buffer.alloc(0), true)],
  ])('a message that is cut off by %s is sent as received', (_, end) => {
    const proxy = watching();
    proxy.backend.send(data(1, Buffer.concat([sent('first'), sent('second').subarray(0, 8)])), end);
    const seen = proxy.client.take();
    expect(dataOf(seen, 1)).toEqual(Buffer.concat([amended('first'), sent('second').subarray(0, 8)]));
    expect(seen.at(-1)!.type).toBe(end[3]);
    expect(skips(proxy)).toEqual([`skipped ${PATH} response`]);
    expect([proxy.core.held.total, proxy.core.streams.running]).toEqual([0, 0]);
  });
});

describe('flow control', () => {
  /** The bytes that a backend would send: as many as its windows allow. */
  function send(proxy: TestProxy, bytes: Buffer, windows: { stream: number; connection: number }): number {
    let at = 0;
    for (;;) {
      for (const { type, id, payload } of proxy.backend.take()) {
        if (type !== WINDOW_UPDATE) continue;
        windows[id === 0 ? 'connection' : 'stream'] += payload.readUInt32BE(0);
      }
      const length = Math.min(windows.stream, windows.connection, 16_384, bytes.length - at);
      if (length === 0) return at;
      proxy.backend.send(data(1, bytes.subarray(at, at + length)));
      at += length;
      windows.stream -= length;
      windows.connection -= length;
    }
  }

  test('a message larger than all windows is completed within the windows of the client', () => {
    const proxy = watching({}, [4, 1000]);
    const long = Buffer.alloc(300_000, 'r');
    expect(send(proxy, message(long), { stream: 1000, connection: 65_535 })).toBe(300_005);
    const seen = proxy.client.take();
    expect(dataOf(seen, 1)).toHaveLength(1000);
    while (dataOf(seen, 1).length < 300_005 + APPENDED.length) {
      proxy.client.send(windowUpdate(1, 50_000), windowUpdate(0, 50_000));
      const more = proxy.client.take();
      expect(dataOf(more, 1).length).toBeLessThanOrEqual(65_535);
      expect(dataOf(more, 1).length).toBeGreaterThan(0);
      seen.push(...more);
    }
    expect(dataOf(seen, 1).equals(message(Buffer.concat([long, APPENDED])))).toBe(true);
    expect(proxy.core.held.total).toBe(0);
  });

  test('KEP-1287: a stream of events stores at most its window, the read-ahead and one message for a client that does not read', () => {
    const proxy = watching({ readAhead: 100_000, responseLimit: 200_000 }, [4, 1000]);
    const windows = { stream: 1000, connection: 165_535 };
    const endless = Buffer.concat(Array.from({ length: 40 }, () => message(Buffer.alloc(150_000))));
    const accepted = send(proxy, endless, windows);
    expect(accepted).toBeLessThanOrEqual(101_000 + 200_005);
    // The proxy reads again, so the rest arrives.
    let received = dataOf(proxy.client.take(), 1).length;
    let offered = accepted;
    const total = endless.length + 40 * APPENDED.length;
    while (received < total) {
      proxy.client.send(windowUpdate(1, 100_000), windowUpdate(0, 100_000));
      offered += send(proxy, endless.subarray(offered), windows);
      const more = dataOf(proxy.client.take(), 1).length;
      expect(more).toBeGreaterThan(0);
      received += more;
    }
    expect([received, offered, proxy.core.held.total]).toEqual([total, endless.length, 0]);
  });

  test('a message that waits for an earlier one is completed once the client has read that one', () => {
    const proxy = watching({}, [4, 1000]);
    const windows = { stream: 1000, connection: 65_535 };
    const bytes = Buffer.concat([message(Buffer.alloc(2996)), message(Buffer.alloc(5000))]);
    // The first message is completed with window that the client has not granted, the second one gets the rest.
    const accepted = send(proxy, bytes, windows);
    expect(accepted).toBe(3001 + 999);
    // The client has read the first message, and returns its window slowly.
    proxy.client.send(windowUpdate(0, 5000), windowUpdate(1, 2001 + APPENDED.length + 10));
    expect(dataOf(proxy.client.take(), 1)).toHaveLength(3001 + APPENDED.length);
    expect(accepted + send(proxy, bytes.subarray(accepted), windows)).toBe(bytes.length);
  });

  test('a message above the limit of held bytes is sent as received, and later ones are amended', () => {
    const proxy = watching({ shared: holdingUpTo(30_000) });
    const long = message(Buffer.alloc(40_000, 'l'));
    proxy.backend.send(data(1, long.subarray(0, 10_000)));
    expect(dataOf(proxy.client.take(), 1)).toEqual(long.subarray(0, 10_000));
    proxy.backend.send(data(1, long.subarray(10_000, 26_000)), data(1, long.subarray(26_000)), data(1, sent('next')));
    expect(dataOf(proxy.client.take(), 1)).toEqual(Buffer.concat([long.subarray(10_000), amended('next')]));
    expect(skips(proxy)).toEqual([`skipped ${PATH} memory`]);
  });
});

test('a stream with a compressed request is forwarded without amendment and counted, and needs no local server', () => {
  const proxy = openProxy();
  proxy.client.send(headers(1, request(PATH, [{ name: 'grpc-encoding', value: 'gzip' }]), true));
  expect(typesOf(proxy.backend.take())).toContain(HEADERS);
  expect(proxy.locals).toEqual([]);
  expect(skips(proxy)).toEqual([`skipped ${PATH} request`]);
  const wire = Buffer.concat([sent('event', true)]);
  proxy.backend.send(headers(1, RESPONSE), data(1, wire));
  expect(dataOf(proxy.client.take(), 1)).toEqual(wire);
});
