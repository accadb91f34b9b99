import fc from 'fast-check';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { ErrorCode } from '../../../../src/server/http2/errors.ts';
import type { Table, TableOptions } from '../../../support/http2/wire.ts';
import {
  ACK,
  DATA,
  HEADERS,
  OK,
  PADDED,
  PING,
  RESPONSE,
  RST_STREAM,
  WINDOW_UPDATE,
  data,
  dataOf,
  frame,
  headers,
  message,
  openTable,
  request,
  rst,
  settled,
  typesOf,
  windowUpdate,
} from '../../../support/http2/wire.ts';

const PATH = '/each/GetContainerEvents';
const APPENDED = Buffer.from('+kernel');

interface Watch extends Table {
  /** The messages that the amendment has got, as text. */
  readonly asked: string[];
  /** Answers the message that waits. */
  answer(amended: Buffer | undefined): Promise<void>;
  refuse(): Promise<void>;
}

/** A table on which a stream has begun whose messages are amended: later if their text begins with `slow`, otherwise at once. */
function watching(options: TableOptions = {}, ...clientSettings: [number, number][]): Watch {
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
  const table = openTable({ amendMessage, ...options }, ...clientSettings);
  table.client.send(headers(1, request(PATH)), data(1, message(Buffer.alloc(0)), true));
  table.backend.take();
  table.backend.send(headers(1, RESPONSE));
  expect(typesOf(table.client.take())).toEqual([HEADERS]);
  return Object.assign(table, {
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
const skips = (table: Table): string[] => table.events.filter((event) => event.startsWith('skipped'));

afterEach(() => void vi.useRealTimers());

describe('A13: a stream whose messages are amended', () => {
  test('each message is amended and sent when it arrives, while the stream stays open', () => {
    const table = watching();
    for (const text of ['first', 'second', 'third']) {
      table.backend.send(data(1, sent(text)));
      expect(dataOf(table.client.take(), 1)).toEqual(amended(text));
      expect(table.core.held.total).toBe(0);
    }
    table.backend.send(headers(1, OK, true));
    expect(typesOf(table.client.take())).toEqual([HEADERS]);
    expect(table.events).toEqual([`${PATH} amend-each answered 0`]);
  });

  test('a message that the amendment does not change is sent as received', () => {
    const table = watching();
    table.backend.send(data(1, Buffer.concat([sent('same'), sent('first'), sent('')])));
    expect(dataOf(table.client.take(), 1)).toEqual(Buffer.concat([sent('same'), amended('first'), amended('')]));
    expect(skips(table)).toEqual([]);
  });

  const kinds = fc.constantFrom('now', 'same', 'slow', 'throw', 'reject', 'compressed', 'long');
  const size = fc.oneof(fc.nat(30), fc.nat(3000));
  test('messages are amended regardless of frames and padding; those that cannot be are sent as received and counted', async () => {
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
          const table = watching({ responseLimit: 4500, readAhead: 1_048_576 });
          const bytes = Buffer.concat(wire);
          const cuts = frames.some(({ length }) => length > 0) ? frames : [{ length: 7, padding: 0 }];
          for (let at = 0, index = 0; at < bytes.length; index += 1) {
            const { length, padding } = cuts[index % cuts.length]!;
            const part = bytes.subarray(at, at + length);
            const padded = Buffer.concat([Buffer.of(padding), part, Buffer.alloc(padding)]);
            table.backend.send(padding > 0 ? frame(DATA, PADDED, 1, padded) : data(1, part));
            at += length;
          }
          table.backend.send(end === 'data' ? data(1, Buffer.alloc(0), true) : headers(1, OK, true));
          for (const { kind } of messages) {
            await settled();
            if (kind === 'reject') await table.refuse();
            if (kind === 'slow') await table.answer(Buffer.from('later'));
          }
          table.client.send(windowUpdate(0, 1_000_000), windowUpdate(1, 1_000_000));
          const expected = contents.map((content, index) => {
            const { kind } = messages[index]!;
            if (kind === 'now') return message(Buffer.concat([content, APPENDED]));
            return kind === 'slow' ? sent('later') : wire[index]!;
          });
          const seen = table.client.take();
          expect(dataOf(seen, 1).equals(Buffer.concat(expected))).toBe(true);
          expect(seen.at(-1)!.flags & 1).toBe(1);
          const unusable = messages.filter(({ kind }) => kind === 'compressed' || kind === 'long').length;
          const failed = messages.filter(({ kind }) => kind === 'throw' || kind === 'reject').length;
          expect(skips(table).toSorted()).toEqual([
            ...Array<string>(failed).fill(`skipped ${PATH} failed`),
            ...Array<string>(unusable).fill(`skipped ${PATH} response`),
          ]);
          expect([table.core.held.total, table.core.streams.running]).toEqual([0, 0]);
        },
      ),
      { numRuns: 300 },
    );
  }, 60_000);
});

describe('while an amendment waits', () => {
  test('later messages and trailers wait, and follow in order', async () => {
    const table = watching();
    table.backend.send(data(1, Buffer.concat([sent('slow 1'), sent('second')])), data(1, sent('slow 3')));
    table.backend.send(headers(1, OK, true));
    await settled();
    expect([table.client.take(), table.asked]).toEqual([[], ['slow 1']]);
    await table.answer(Buffer.from('first'));
    expect(dataOf(table.client.take(), 1)).toEqual(Buffer.concat([sent('first'), amended('second')]));
    expect(table.asked).toEqual(['slow 1', 'second', 'slow 3']);
    await table.answer(undefined);
    const seen = table.client.take();
    expect(dataOf(seen, 1)).toEqual(sent('slow 3'));
    expect(seen.at(-1)!.type).toBe(HEADERS);
    expect(table.core.streams.running).toBe(0);
  });

  test('a message whose amendment takes too long is sent as received, and later ones are amended', async () => {
    vi.useFakeTimers();
    const table = watching({ amendTimeout: 2000 });
    table.backend.send(data(1, sent('slow 1')), data(1, sent('second')));
    await settled();
    vi.advanceTimersByTime(1999);
    expect(table.client.take()).toEqual([]);
    vi.advanceTimersByTime(1);
    await settled();
    expect(dataOf(table.client.take(), 1)).toEqual(Buffer.concat([sent('slow 1'), amended('second')]));
    await table.answer(Buffer.from('late'));
    expect(table.client.take()).toEqual([]);
    expect(skips(table)).toEqual([`skipped ${PATH} slow`]);
  });

  test('the backend gets no more window than the client allows', async () => {
    const table = watching({}, [4, 1000]);
    table.backend.send(data(1, Buffer.concat([sent('slow 1'), Buffer.alloc(900)])));
    expect(table.backend.take()).toEqual([]);
    await table.answer(undefined);
    table.client.send(rst(1, ErrorCode.CANCEL));
  });

  test('a client that cancels receives nothing more, and held bytes occupy no window', async () => {
    const table = watching();
    const bytes = Buffer.concat([sent('slow 1'), sent('second').subarray(0, 7)]);
    table.backend.send(data(1, bytes));
    table.client.send(rst(1, ErrorCode.CANCEL));
    const seen = table.backend.take();
    expect(typesOf(seen)).toEqual([RST_STREAM, WINDOW_UPDATE]);
    expect(seen[1]!.payload.readUInt32BE(0)).toBe(bytes.length);
    await table.answer(Buffer.from('late'));
    expect(table.client.take()).toEqual([]);
    expect(table.core.held.total).toBe(0);
  });

  test('a backend that is lost leads to UNAVAILABLE after the messages that have come', async () => {
    const table = watching();
    table.backend.send(data(1, Buffer.concat([sent('slow 1'), sent('second')])));
    table.backend.events.closed(undefined);
    expect(dataOf(table.client.take(), 1)).toHaveLength(0);
    await table.answer(Buffer.from('first'));
    const seen = table.client.take();
    expect(dataOf(seen, 1)).toEqual(Buffer.concat([sent('first'), amended('second')]));
    expect(String(seen.at(-1)!.payload)).toMatch(/grpc-status.*14/s);
    expect(table.client.ended).toBe(true);
  });
});

describe('a stream that stays open', () => {
  test('no memory and no timer is held between messages', async () => {
    vi.useFakeTimers();
    const table = watching();
    table.backend.send(data(1, sent('slow 1')));
    await settled();
    expect(vi.getTimerCount()).toBe(1);
    await table.answer(Buffer.from('first'));
    table.backend.send(data(1, sent('second')));
    expect([vi.getTimerCount(), table.core.held.total]).toEqual([0, 0]);
    expect(table.core.streams.get(1)!.down.queue).toEqual([]);
    const hours = 10 * 3_600_000;
    vi.advanceTimersByTime(hours);
    table.client.take();
    table.backend.send(data(1, sent('third')));
    expect(dataOf(table.client.take(), 1)).toEqual(amended('third'));
  });

  test('a shutdown ends the stream with UNAVAILABLE after the received messages', async () => {
    let answer: (amended: Buffer) => void = () => undefined;
    const table = openTable({ amendMessage: () => new Promise<Buffer>((resolve) => (answer = resolve)) });
    table.client.send(headers(1, request('/each/Watch'), true));
    table.backend.send(headers(1, RESPONSE), data(1, sent('slow')));
    table.core.shutdown();
    await settled();
    const ping = table.client.take().find(({ type }) => type === PING)!;
    table.client.send(frame(PING, ACK, 0, ping.payload));
    expect(table.client.ended).toBe(false);
    answer(Buffer.from('done'));
    await settled();
    const seen = table.client.take();
    expect(dataOf(seen, 1)).toEqual(sent('done'));
    expect(String(seen.at(-1)!.payload)).toMatch(/grpc-status.*14/s);
    expect(table.client.ended).toBe(true);
  });
});

describe('a stream that ends within a message', () => {
  test.each<[how: string, end: Buffer]>([
    ['trailers', headers(1, OK, true)],
    ['a reset', rst(1, 2)],
    ['the last DATA', data(1, Buffer.alloc(0), true)],
  ])('a message that is cut off by %s is sent as received', (_, end) => {
    const table = watching();
    table.backend.send(data(1, Buffer.concat([sent('first'), sent('second').subarray(0, 8)])), end);
    const seen = table.client.take();
    expect(dataOf(seen, 1)).toEqual(Buffer.concat([amended('first'), sent('second').subarray(0, 8)]));
    expect(seen.at(-1)!.type).toBe(end[3]);
    expect(skips(table)).toEqual([`skipped ${PATH} response`]);
    expect([table.core.held.total, table.core.streams.running]).toEqual([0, 0]);
  });
});

describe('flow control', () => {
  /** What a backend would send of these bytes: as much as its windows allow. */
  function send(table: Table, bytes: Buffer, windows: { stream: number; connection: number }): number {
    let at = 0;
    for (;;) {
      for (const { type, id, payload } of table.backend.take()) {
        if (type !== WINDOW_UPDATE) continue;
        windows[id === 0 ? 'connection' : 'stream'] += payload.readUInt32BE(0);
      }
      const length = Math.min(windows.stream, windows.connection, 16_384, bytes.length - at);
      if (length === 0) return at;
      table.backend.send(data(1, bytes.subarray(at, at + length)));
      at += length;
      windows.stream -= length;
      windows.connection -= length;
    }
  }

  test('a message larger than all windows is completed within the windows of the client', () => {
    const table = watching({}, [4, 1000]);
    const long = Buffer.alloc(300_000, 'r');
    expect(send(table, message(long), { stream: 1000, connection: 65_535 })).toBe(300_005);
    const seen = table.client.take();
    expect(dataOf(seen, 1)).toHaveLength(1000);
    while (dataOf(seen, 1).length < 300_005 + APPENDED.length) {
      table.client.send(windowUpdate(1, 50_000), windowUpdate(0, 50_000));
      const more = table.client.take();
      expect(dataOf(more, 1).length).toBeLessThanOrEqual(65_535);
      expect(dataOf(more, 1).length).toBeGreaterThan(0);
      seen.push(...more);
    }
    expect(dataOf(seen, 1).equals(message(Buffer.concat([long, APPENDED])))).toBe(true);
    expect(table.core.held.total).toBe(0);
  });

  test('at most the window, the read-ahead and one message are stored for a client that does not read', () => {
    const table = watching({ readAhead: 100_000, responseLimit: 200_000 }, [4, 1000]);
    const windows = { stream: 101_000, connection: 165_535 };
    const endless = Buffer.concat(Array.from({ length: 40 }, () => message(Buffer.alloc(150_000))));
    const accepted = send(table, endless, windows);
    expect(accepted).toBeLessThanOrEqual(101_000 + 200_005);
    // It reads again: the rest arrives.
    let received = dataOf(table.client.take(), 1).length;
    let offered = accepted;
    const total = endless.length + 40 * APPENDED.length;
    while (received < total) {
      table.client.send(windowUpdate(1, 100_000), windowUpdate(0, 100_000));
      offered += send(table, endless.subarray(offered), windows);
      const more = dataOf(table.client.take(), 1).length;
      expect(more).toBeGreaterThan(0);
      received += more;
    }
    expect([received, offered, table.core.held.total]).toEqual([total, endless.length, 0]);
  });

  test('a message that waits for an earlier one is completed once the client has read that one', () => {
    const table = watching({}, [4, 1000]);
    const windows = { stream: 1000, connection: 65_535 };
    const bytes = Buffer.concat([message(Buffer.alloc(2996)), message(Buffer.alloc(5000))]);
    // Completed with window that the client has not given; of the second one comes what that has left.
    const accepted = send(table, bytes, windows);
    expect(accepted).toBe(3001 + 999);
    // The client has read the first one, and is slow to return window.
    table.client.send(windowUpdate(0, 5000), windowUpdate(1, 2001 + APPENDED.length + 10));
    expect(dataOf(table.client.take(), 1)).toHaveLength(3001 + APPENDED.length);
    expect(accepted + send(table, bytes.subarray(accepted), windows)).toBe(bytes.length);
  });

  test('a message above the limit of held bytes is sent as received, and later ones are amended', () => {
    const table = watching({ heldLimit: 30_000 });
    const long = message(Buffer.alloc(40_000, 'l'));
    table.backend.send(data(1, long.subarray(0, 10_000)));
    expect(dataOf(table.client.take(), 1)).toEqual(long.subarray(0, 10_000));
    table.backend.send(data(1, long.subarray(10_000, 26_000)), data(1, long.subarray(26_000)), data(1, sent('next')));
    expect(dataOf(table.client.take(), 1)).toEqual(Buffer.concat([long.subarray(10_000), amended('next')]));
    expect(skips(table)).toEqual([`skipped ${PATH} memory`]);
  });
});

test('a compressed request goes to the local server, which can read it', () => {
  const table = openTable();
  table.client.send(headers(1, request(PATH, [{ name: 'grpc-encoding', value: 'gzip' }]), true));
  expect(table.backend.take()).toEqual([]);
  expect(typesOf(table.locals[0]!.take())).toContain(HEADERS);
});
