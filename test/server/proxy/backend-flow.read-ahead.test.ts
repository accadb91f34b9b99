import { describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { LIMITS } from '../../../src/server/proxy/serve.ts';
import {
  OK,
  RESPONSE,
  type TestProxy,
  WINDOW_UPDATE,
  data,
  headers,
  message,
  openProxy,
  request,
} from '../../support/http2/wire.ts';

const STREAM_WINDOW = 65_535;
const FRAME = 16_384;
const routes = ['pass', 'amend', 'each'];

/** A backend that answers calls of a client that has not returned any window. */
class Answers {
  readonly proxy: TestProxy;
  readonly #windows = new Map<number, number>();

  constructor() {
    const { readAhead, queueLimit } = LIMITS;
    this.proxy = openProxy({ readAhead, queueLimit, amend: () => undefined });
  }

  /** Starts a call. Returns the window that the backend has for its response. */
  start(id: number, path: string): number {
    this.proxy.client.send(headers(id, request(path)), data(id, message(Buffer.alloc(0)), true));
    return this.#windowOf(id);
  }

  /** Sends the first frame of a response of this many bytes. Returns the window that the backend has for the others. */
  begin(id: number, bytes: number): number {
    const first = message(Buffer.alloc(bytes - 5)).subarray(0, FRAME);
    this.proxy.backend.send(headers(id, RESPONSE), data(id, first));
    this.#windows.set(id, this.#windowOf(id) - first.length);
    return this.#windowOf(id);
  }

  /** Sends the rest of a response that fits into the window. Returns the window that is left before the trailers. */
  complete(id: number, bytes: number): number {
    for (let rest = bytes - FRAME; rest > 0; rest -= FRAME) {
      const size = Math.min(rest, FRAME);
      this.proxy.backend.send(data(id, Buffer.alloc(size)));
      this.#windows.set(id, this.#windowOf(id) - size);
    }
    const left = this.#windowOf(id);
    this.proxy.backend.send(headers(id, OK, true));
    return left;
  }

  #windowOf(id: number): number {
    const granted = this.proxy.backend
      .take()
      .filter(({ type }) => type === WINDOW_UPDATE)
      .map((update) => [update.id, update.payload.readUInt32BE(0)] as const);
    for (const [stream, bytes] of granted)
      this.#windows.set(stream, (this.#windows.get(stream) ?? STREAM_WINDOW) + bytes);
    return this.#windows.get(id) ?? STREAM_WINDOW;
  }
}

describe.each(routes)('a response (%s)', (route) => {
  test.each([66_000, 100_000, 300_000])(
    'a response of %d bytes can be sent completely after its first frame',
    (bytes) => {
      const answers = new Answers();
      answers.start(1, `/${route}/A`);
      expect(answers.begin(1, bytes)).toBeGreaterThanOrEqual(bytes - FRAME);
      // A backend may not send trailers either while it has no window left.
      expect(answers.complete(1, bytes)).toBeGreaterThan(0);
    },
  );

  test('a response of 5 MiB gets the whole read-ahead and no more', () => {
    const answers = new Answers();
    answers.start(1, `/${route}/A`);
    const window = answers.begin(1, 5 * MiB);
    expect(window).toBeGreaterThanOrEqual(STREAM_WINDOW - FRAME + LIMITS.readAhead);
    expect(window).toBeLessThanOrEqual(STREAM_WINDOW + LIMITS.readAhead);
  });
});

test('a response that fits into the window of its stream gets no read-ahead', () => {
  const answers = new Answers();
  answers.start(1, '/pass/A');
  expect(answers.begin(1, 60_000)).toBe(STREAM_WINDOW - FRAME);
  expect(answers.complete(1, 60_000)).toBe(STREAM_WINDOW - 60_000);
});

test('sixteen responses of 100 KB on one connection can all be sent completely', () => {
  const answers = new Answers();
  const ids = Array.from({ length: 16 }, (_, call) => 2 * call + 1);
  for (const id of ids) answers.start(id, '/pass/A');
  for (const id of ids) expect(answers.begin(id, 100_000)).toBeGreaterThan(100_000 - FRAME);
});
