import { describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { LIMITS, SHARED_LIMITS } from '../../../src/server/proxy/serve.ts';
import { SharedBudget } from '../../../src/server/proxy/shared-budget.ts';
import { ModelClient, ModelServer, contents } from '../../support/http2/model.ts';
import { PREFACE, type TestProxy, startProxy } from '../../support/http2/wire.ts';

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

  /** Bytes that wait in the proxy for the client. */
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

  /** Lets both ends do all that they can. */
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
