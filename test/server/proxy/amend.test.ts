import { afterEach, describe, expect, test, vi } from 'vitest';
import type { Exchange } from '../../../src/server/proxy/interception.ts';
import { ErrorCode } from '../../../src/server/http2/errors.ts';
import type { Table, TableOptions } from '../../support/http2/wire.ts';
import {
  DATA,
  HEADERS,
  OK,
  PADDED,
  RESPONSE,
  RST_STREAM,
  SETTINGS,
  SETTINGS_ACK,
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
  settings,
  typesOf,
  u32,
  windowUpdate,
} from '../../support/http2/wire.ts';

const PATH = '/amend/ContainerStatus';
const APPENDED = Buffer.from('appended');

/** A table on which a call is to be amended, its request sent; amendments wait to be told. */
function calling(
  options: TableOptions = {},
  ...clientSettings: [number, number][]
): Table & {
  asked: Exchange[];
  answer: (appended?: Uint8Array) => Promise<void>;
  fail: (error: Error) => Promise<void>;
} {
  const asked: Exchange[] = [];
  const waiting: PromiseWithResolvers<Uint8Array | undefined>[] = [];
  const table = openTable(
    {
      ...options,
      amend: (exchange) => {
        asked.push(exchange);
        const answer = withResolvers<Uint8Array | undefined>();
        waiting.push(answer);
        return answer.promise.then((appended) => appended && Buffer.concat([exchange.response, appended]));
      },
    },
    ...clientSettings,
  );
  table.client.send(headers(1, request(PATH)), data(1, message(Buffer.from('the request')), true));
  table.backend.take();
  return Object.assign(table, {
    asked,
    answer: (appended?: Uint8Array) => {
      waiting.shift()!.resolve(appended);
      return settled();
    },
    fail: (error: Error) => {
      waiting.shift()!.reject(error);
      return settled();
    },
  });
}

interface PromiseWithResolvers<T> {
  promise: Promise<T>;
  resolve: (value: T) => void;
  reject: (error: Error) => void;
}

function withResolvers<T>(): PromiseWithResolvers<T> {
  let resolve!: (value: T) => void;
  let reject!: (error: Error) => void;
  const promise = new Promise<T>((good, bad) => {
    resolve = good;
    reject = bad;
  });
  return { promise, resolve, reject };
}

const RESPONSE_TEXT = Buffer.from('the response');
const whole = message(RESPONSE_TEXT);
const amended = message(Buffer.concat([RESPONSE_TEXT, APPENDED]));

afterEach(() => void vi.useRealTimers());

describe('an amended response', () => {
  test('headers, message and trailers are sent together once the message is amended', async () => {
    const table = calling();
    table.backend.send(headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    expect(table.client.take()).toEqual([]);
    expect(table.asked.map(({ path, request: sent, response }) => [path, String(sent), String(response)])).toEqual([
      [PATH, 'the request', 'the response'],
    ]);
    await table.answer(APPENDED);
    const seen = table.client.take();
    expect(typesOf(seen)).toEqual([HEADERS, DATA, HEADERS]);
    expect(dataOf(seen, 1)).toEqual(amended);
    expect(seen.map(({ flags }) => flags & 1)).toEqual([0, 0, 1]);
    expect(table.events).toEqual([`${PATH} amend answered 0`]);
  });

  test.each([1, 3, 5, 6, 11])('is the same if received with %i octets per frame and padding', async (step) => {
    const table = calling();
    table.backend.send(headers(1, RESPONSE));
    for (let at = 0; at < whole.length; at += step) {
      const part = whole.subarray(at, at + step);
      table.backend.send(frame(DATA, PADDED, 1, Buffer.concat([Buffer.of(2), part, Buffer.alloc(2)])));
    }
    table.backend.send(headers(1, OK, true));
    await table.answer(APPENDED);
    const seen = table.client.take();
    expect(dataOf(seen, 1)).toEqual(amended);
    expect(seen.at(-1)!.flags & 1).toBe(1);
  });

  test('is the same if the request is split', async () => {
    const table = calling();
    table.client.send(headers(3, request(PATH)));
    const sent = message(Buffer.from('other request'));
    for (const octet of sent) table.client.send(data(3, Buffer.of(octet)));
    table.client.send(data(3, Buffer.alloc(0), true));
    expect(dataOf(table.backend.take(), 3)).toEqual(sent);
    table.backend.send(headers(3, RESPONSE), data(3, whole), headers(3, OK, true));
    expect(String(table.asked[0]!.request)).toBe('other request');
    await table.answer(APPENDED);
    expect(dataOf(table.client.take(), 3)).toEqual(amended);
  });

  test('may end with DATA instead of trailers', async () => {
    const table = calling();
    table.backend.send(headers(1, RESPONSE), data(1, whole, true));
    await table.answer(APPENDED);
    const seen = table.client.take();
    expect(dataOf(seen, 1)).toEqual(amended);
    expect(seen.at(-1)!.flags & 1).toBe(1);
    expect(table.core.streams.running).toBe(0);
  });

  test('does not delay other responses, whatever headers they share', async () => {
    const table = calling();
    table.client.send(
      headers(3, request('/pass/A'), true),
      headers(5, request(PATH)),
      data(5, message(Buffer.of()), true),
    );
    table.backend.send(headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    table.backend.send(headers(5, RESPONSE), data(5, whole), headers(5, OK, true));
    table.backend.send(headers(3, RESPONSE), data(3, Buffer.from('passes')), headers(3, OK, true));
    await settled();
    expect(table.client.take().filter(({ id }) => id === 3)).toHaveLength(3);
    expect(table.asked).toHaveLength(2);
    await table.answer(APPENDED);
    await table.answer(APPENDED);
    const seen = table.client.take();
    expect([dataOf(seen, 1), dataOf(seen, 5)]).toEqual([amended, amended]);
  });

  test("larger than the windows does not stall the backend nor exceed the client's window", async () => {
    const table = calling({}, [4, 1000]);
    const long = Buffer.alloc(300_000, 'r');
    const sent = message(long);
    table.backend.send(headers(1, RESPONSE));
    let granted = 1000;
    let connection = 65_535;
    for (let at = 0; at < sent.length; ) {
      const size = Math.min(granted, connection, 16_384, sent.length - at);
      expect(size).toBeGreaterThan(0);
      table.backend.send(data(1, sent.subarray(at, at + size)));
      at += size;
      granted -= size;
      connection -= size;
      for (const seen of table.backend.take()) {
        expect(seen.type).toBe(WINDOW_UPDATE);
        if (seen.id === 1) granted += seen.payload.readUInt32BE(0);
        else connection += seen.payload.readUInt32BE(0);
      }
    }
    table.backend.send(headers(1, OK, true));
    await table.answer(APPENDED);
    const seen = table.client.take();
    expect(dataOf(seen, 1)).toHaveLength(1000);
    while (seen.at(-1)!.type === DATA) {
      table.client.send(windowUpdate(1, 50_000), windowUpdate(0, 50_000));
      const more = table.client.take();
      expect(dataOf(more, 1).length).toBeLessThanOrEqual(65_535);
      for (const one of more) expect(one.payload.length).toBeLessThanOrEqual(16_384);
      seen.push(...more);
    }
    expect(dataOf(seen, 1).equals(message(Buffer.concat([long, APPENDED])))).toBe(true);
    expect(table.core.held.total).toBe(0);
  });
});

describe('a response that cannot be amended is forwarded unchanged', () => {
  const trailers = headers(1, OK, true);
  test.each<[what: string, reason: string, sent: Buffer[]]>([
    ['it is compressed', 'response', [data(1, message(RESPONSE_TEXT, true)), trailers]],
    ['it is two messages', 'response', [data(1, Buffer.concat([whole, whole])), trailers]],
    ['it is cut off by trailers', 'response', [data(1, whole.subarray(0, 8)), trailers]],
    ['it is cut off by its last frame', 'response', [data(1, whole.subarray(0, 8), true)]],
    ['it is cut off by a reset', 'response', [data(1, whole.subarray(0, 8)), rst(1, 2)]],
    ['it is longer than is held', 'response', [data(1, message(Buffer.alloc(5001))), trailers]],
  ])('%s', async (_, reason, sent) => {
    const table = calling({ responseLimit: 5000 });
    table.backend.send(headers(1, RESPONSE), ...sent);
    await settled();
    const expected = openTable();
    expected.client.send(headers(1, request('/pass/A'), true));
    expected.backend.send(headers(1, RESPONSE), ...sent);
    const seen = table.client.take();
    const asItCame = expected.client.take();
    expect(dataOf(seen, 1)).toEqual(dataOf(asItCame, 1));
    expect(seen.at(-1)).toEqual(asItCame.at(-1));
    expect(table.asked).toEqual([]);
    expect(table.events).toContain(`skipped ${PATH} ${reason}`);
    expect(table.core.held.total).toBe(0);
  });

  test('an error without a message', () => {
    const table = calling();
    const answer = headers(1, [...RESPONSE, { name: 'grpc-status', value: '5' }], true);
    table.backend.send(answer);
    expect(table.client.takeBytes()).toEqual(answer);
    expect(table.events).toEqual([`${PATH} amend answered 5`]);
  });

  test('nothing to append', async () => {
    const table = calling();
    table.backend.send(headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    await table.answer(undefined);
    expect(dataOf(table.client.take(), 1)).toEqual(whole);
    expect(table.events).toEqual([`${PATH} amend answered 0`]);
  });

  test.each(['rejected', 'thrown'])('the amendment was %s', async (how) => {
    const table =
      how === 'rejected'
        ? calling()
        : openTable({
            amend: () => {
              throw new Error('no');
            },
          });
    if (!('fail' in table)) table.client.send(headers(1, request(PATH)), data(1, message(Buffer.of()), true));
    table.backend.send(headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    if ('fail' in table) await (table as ReturnType<typeof calling>).fail(new Error('no'));
    await settled();
    const seen = table.client.take();
    expect(dataOf(seen, 1)).toEqual(whole);
    expect(table.events).toEqual([`skipped ${PATH} failed`, `${PATH} amend answered 0`]);
  });

  test('the amendment takes too long, and its late result is ignored', async () => {
    vi.useFakeTimers();
    const table = calling({ amendTimeout: 2000 });
    table.backend.send(headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    await settled();
    vi.advanceTimersByTime(1999);
    expect(table.client.take()).toEqual([]);
    vi.advanceTimersByTime(1);
    await settled();
    expect(dataOf(table.client.take(), 1)).toEqual(whole);
    await table.answer(APPENDED);
    expect(table.client.take()).toEqual([]);
    expect(table.events).toEqual([`skipped ${PATH} slow`, `${PATH} amend answered 0`]);
  });

  test('a second message follows while the first is held', async () => {
    const table = calling();
    table.backend.send(headers(1, RESPONSE), data(1, whole), data(1, whole), headers(1, OK, true));
    await settled();
    expect(dataOf(table.client.take(), 1)).toEqual(Buffer.concat([whole, whole]));
    await table.answer(APPENDED);
    expect(table.client.take()).toEqual([]);
    expect(table.events).toContain(`skipped ${PATH} response`);
  });

  test.each<[string, Buffer]>([
    ['longer than is kept', message(Buffer.alloc(1001))],
    ['compressed', message(Buffer.alloc(10), true)],
    ['cut off', message(Buffer.alloc(10)).subarray(0, 12)],
    ['not one message', Buffer.concat([message(Buffer.alloc(10)), message(Buffer.alloc(10))])],
  ])('its request is %s', (_, sent) => {
    const table = openTable({
      requestLimit: 1000,
      amend: ({ response }) => Promise.resolve(Buffer.concat([response, APPENDED])),
    });
    table.client.send(headers(1, request(PATH)), data(1, sent, true));
    expect(dataOf(table.backend.take(), 1)).toEqual(sent);
    table.backend.send(headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    expect(dataOf(table.client.take(), 1)).toEqual(whole);
    expect(table.events).toContain(`skipped ${PATH} request`);
    expect(table.core.held.total).toBe(0);
  });

  test('the limit of held bytes is reached', async () => {
    const table = calling({ heldLimit: 34_000 });
    table.backend.send(headers(1, RESPONSE), data(1, message(Buffer.alloc(30_000)).subarray(0, 16_384)));
    table.client.send(headers(3, request(PATH)), data(3, message(Buffer.of()), true));
    const second = message(Buffer.alloc(20_000));
    table.backend.send(headers(3, RESPONSE), data(3, second.subarray(0, 9000)));
    expect(dataOf(table.client.take(), 3)).toEqual(second.subarray(0, 9000));
    table.backend.send(data(3, second.subarray(9000)), headers(3, OK, true));
    expect(dataOf(table.client.take(), 3)).toEqual(second.subarray(9000));
    expect(table.events).toContain(`skipped ${PATH} memory`);
    table.backend.send(data(1, message(Buffer.alloc(30_000)).subarray(16_384)), headers(1, OK, true));
    await table.answer(APPENDED);
    expect(table.events).toContain(`${PATH} amend answered 0`);
  });
});

describe('while a response is held', () => {
  test('a client that cancels gets nothing more, and held bytes occupy no window', async () => {
    const table = calling();
    table.backend.send(headers(1, RESPONSE), data(1, whole));
    table.client.take();
    table.client.send(rst(1, ErrorCode.CANCEL));
    const seen = table.backend.take();
    expect(typesOf(seen)).toEqual([RST_STREAM, WINDOW_UPDATE]);
    expect(seen[1]!.payload.readUInt32BE(0)).toBe(whole.length);
    await table.answer(APPENDED);
    table.backend.send(headers(1, OK, true));
    expect(table.client.take()).toEqual([]);
    expect(table.events).toEqual([`${PATH} amend cancelled undefined`]);
    expect(table.core.held.total).toBe(0);
  });

  test('a backend lost before the trailers leads to UNAVAILABLE without a partial response', async () => {
    const table = calling();
    table.backend.send(headers(1, RESPONSE), data(1, whole));
    table.client.take();
    table.backend.events.closed(undefined);
    const seen = table.client.take();
    expect(seen[0]!.type).toBe(HEADERS);
    expect(String(seen[0]!.payload)).toMatch(/grpc-status.*14/s);
    expect(seen[0]!.flags & 1).toBe(1);
    expect(dataOf(seen, 1)).toHaveLength(0);
    await table.answer(APPENDED);
    expect(table.client.take()).toEqual([]);
  });

  test('a backend lost after the trailers has answered', async () => {
    const table = calling();
    table.backend.send(headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    table.backend.events.closed(undefined);
    table.client.take();
    expect(table.client.ended).toBe(false);
    await table.answer(APPENDED);
    expect(dataOf(table.client.take(), 1)).toEqual(amended);
    expect(table.client.ended).toBe(true);
    expect(table.events.at(-1)).toBe(`${PATH} amend answered 0`);
  });

  test("a change of the client's windows applies to held data", async () => {
    const table = calling();
    table.backend.send(headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    table.client.send(settings([4, 7]));
    table.backend.send(SETTINGS_ACK);
    table.client.take();
    await table.answer(APPENDED);
    expect(dataOf(table.client.take(), 1)).toHaveLength(7);
    // What waits is the backend's as before: it gets its window back when it has gone.
    expect(typesOf(table.backend.take())).toEqual([SETTINGS]);
    table.client.send(windowUpdate(1, 1000));
    const seen = table.client.take();
    expect(dataOf(seen, 1)).toEqual(amended.subarray(7));
    expect(seen.at(-1)!.type).toBe(HEADERS);
  });
});

describe('routes', () => {
  test('a compressed request goes to the local server, which can read it', () => {
    const table = openTable();
    table.client.send(headers(1, request(PATH, [{ name: 'grpc-encoding', value: 'gzip' }])));
    expect(table.backend.take()).toEqual([]);
    expect(typesOf(table.locals[0]!.take())).toContain(HEADERS);
    table.client.send(headers(3, request(PATH, [{ name: 'grpc-encoding', value: 'identity' }])));
    expect(typesOf(table.backend.take())).toEqual([HEADERS]);
  });

  test('bytes that were added are not granted to the backend', async () => {
    const table = calling();
    table.backend.send(headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    await table.answer(APPENDED);
    table.backend.take();
    table.client.send(windowUpdate(0, 100));
    expect(table.backend.take()).toEqual([
      { type: WINDOW_UPDATE, flags: 0, id: 0, payload: u32(100 - APPENDED.length) },
    ]);
  });
});
