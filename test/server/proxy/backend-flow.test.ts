import { describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { LIMITS, SHARED_LIMITS } from '../../../src/server/proxy/serve.ts';
import { SharedBudget } from '../../../src/server/proxy/shared-budget.ts';
import { contents, ModelClient, ModelServer } from '../../support/http2/model.ts';
import type { TestProxy } from '../../support/http2/wire.ts';
import {
  data,
  headers,
  message,
  OK,
  openProxy,
  PREFACE,
  RESPONSE,
  request,
  startProxy,
  WINDOW_UPDATE,
} from '../../support/http2/wire.ts';

const STREAM_WINDOW = 65_535;

/** More than a window and the read-ahead. */
const LONG = 500_000;

/**
 * A client like grpc-go: it returns the connection's window for all DATA, and a stream's window only for what its
 * caller reads (RFC 9113 6.9.1 leaves both to the receiver).
 */
class Caller {
  readonly proxy: TestProxy;
  readonly client: ModelClient;
  readonly backend: ModelServer;
  readonly #window: number;
  readonly #unread = new Set<number>();
  #last = -1;

  constructor(window: number, shared = new SharedBudget(SHARED_LIMITS)) {
    const { readAhead, queueLimit } = LIMITS;
    this.#window = window;
    this.proxy = startProxy({ readAhead, queueLimit, shared, amend: ({ response }) => response });
    this.client = new ModelClient(this.proxy.client);
    this.backend = new ModelServer(this.proxy.backend);
    this.client.sendSettings(PREFACE);
    this.backend.sendSettings();
    this.#transfer();
  }

  /** Opens calls whose responses are not read, and has the backend send what it may. */
  leave(route: string, count: number): void {
    for (let call = 0; call < count; call += 1) this.#unread.add(this.#start(route, LONG));
    this.#transfer();
  }

  /** Makes a call and reads its response. Returns whether it has arrived unchanged. */
  call(route: string, bytes: number): boolean {
    const id = this.#start(route, bytes);
    this.#transfer();
    return this.#isComplete(id);
  }

  /** Reads the responses that were left. Returns whether all have arrived unchanged. */
  readAll(): boolean {
    this.#unread.clear();
    this.#transfer();
    return [...this.client.streams.keys()].every((id) => this.#isComplete(id));
  }

  /** Bytes that are queued in the proxy for the client. */
  get waiting(): number {
    return [...this.proxy.core.streams.all()].reduce((sum, { down }) => sum + down.charged, 0);
  }

  #start(route: string, bytes: number): number {
    this.#last += 2;
    this.client.start({ route, up: 3, down: bytes });
    this.client.sendSome(this.#last, 100);
    return this.#last;
  }

  #isComplete(id: number): boolean {
    const { ended, received } = this.client.streams.get(id)!;
    return ended && Buffer.concat(received).equals(contents(id, this.client.plans.get(id)!).down);
  }

  /** Transfers bytes between both ends until nothing moves. */
  #transfer(): void {
    const { client, backend } = this;
    for (let idle = 0; idle < 2; idle += 1) {
      for (const peer of [client, backend]) {
        peer.collect();
        while (peer.step()) idle = -1;
      }
      client.grant(0, this.#window - client.granted);
      for (const [id, { granted }] of client.streams)
        if (!this.#unread.has(id)) client.grant(id, Math.max(0, STREAM_WINDOW - granted));
      backend.grant(0, STREAM_WINDOW - backend.granted);
      const before = backend.window;
      for (const id of backend.streams.keys()) backend.sendSome(id, 16_384);
      if (backend.window < before) idle = -1;
    }
  }
}

describe.each([65_535, 16 * MiB])('a client with a connection window of %d bytes', (window) => {
  describe.each(['pass', 'amend', 'each'])('unread responses (%s)', (route) => {
    test.each([1, 2, 10, 100])(
      'a client with unread responses gets the responses to its other calls completely (%d unread)',
      (count) => {
        const caller = new Caller(window);
        caller.leave(route, count);
        for (const other of ['pass', 'amend', 'each']) expect(caller.call(other, 200_000)).toBe(true);
        expect(caller.readAll()).toBe(true);
        expect(caller.waiting).toBe(0);
      },
      60_000,
    );
  });

  test.each([
    [1, LIMITS.readAhead, LIMITS.readAhead],
    [2, 2 * LIMITS.readAhead, 2 * LIMITS.readAhead],
    [10, 3 * LIMITS.readAhead, LIMITS.queueLimit],
    [100, 3 * LIMITS.readAhead, LIMITS.queueLimit],
  ])(
    'the read-ahead of %d unread responses waits at most, within the limit of the connection',
    (count, least, most) => {
      const caller = new Caller(window);
      caller.leave('pass', count);
      expect(caller.waiting).toBeGreaterThanOrEqual(least);
      expect(caller.waiting).toBeLessThanOrEqual(most);
    },
  );

  test('all responses are complete even if the limit of all connections is reached, and the limit is kept', () => {
    const shared = new SharedBudget({ ...SHARED_LIMITS, queued: MiB });
    const callers = Array.from({ length: 6 }, () => new Caller(window, shared));
    for (const caller of callers) caller.leave('pass', 10);
    const waiting = callers.reduce((sum, caller) => sum + caller.waiting, 0);
    expect(waiting).toBeGreaterThan(MiB - 65_536);
    expect(waiting).toBeLessThanOrEqual(MiB + LIMITS.readAhead);
    for (const caller of callers) {
      expect(caller.call('pass', 200_000)).toBe(true);
      expect(caller.readAll()).toBe(true);
    }
    expect(shared.queued.total).toBe(0);
  });
});

test('a response that is read keeps its read-ahead while other responses are unread', () => {
  const caller = new Caller(65_535);
  caller.leave('pass', 2);
  const before = caller.waiting;
  caller.leave('pass', 1);
  expect(caller.waiting).toBe(before + LIMITS.readAhead);
});

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

  /** Starts a call. Returns the backend's window for its response. */
  start(id: number, path: string): number {
    this.proxy.client.send(headers(id, request(path)), data(id, message(Buffer.alloc(0)), true));
    return this.#windowOf(id);
  }

  /** Sends the first frame of a response of this many bytes. Returns the backend's window for the rest. */
  begin(id: number, bytes: number): number {
    const first = message(Buffer.alloc(bytes - 5)).subarray(0, FRAME);
    this.proxy.backend.send(headers(id, RESPONSE), data(id, first));
    this.#windows.set(id, this.#windowOf(id) - first.length);
    return this.#windowOf(id);
  }

  /** Sends the part of a response that fits into the window. Returns the remaining window before the trailers. */
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
