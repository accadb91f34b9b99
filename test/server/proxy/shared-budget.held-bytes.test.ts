import { describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { SHARED_LIMITS } from '../../../src/server/proxy/serve.ts';
import { SharedBudget } from '../../../src/server/proxy/shared-budget.ts';
import {
  RESPONSE,
  type TestProxy,
  WINDOW_UPDATE,
  data,
  dataOf,
  headers,
  message,
  openProxy,
  request,
  settled,
  windowUpdate,
} from '../../support/http2/wire.ts';

const FRAME = 16_384;
const CALL = message(Buffer.alloc(70));
/** The window of each stream. A smaller one would make as many frames as bytes. */
const WINDOW = 1024;

/** Returns a connection whose client reads nothing. Its own window is large, those of its streams almost zero. */
function stalled(shared: SharedBudget): TestProxy {
  const proxy = openProxy({ readAhead: MiB / 4, queueLimit: MiB, amend: () => undefined, shared }, [4, WINDOW]);
  proxy.client.send(windowUpdate(0, 1 << 30));
  proxy.backend.send(windowUpdate(0, 1 << 30));
  return proxy;
}

/** Responds to many calls. The last byte of each comes after all others have arrived. They wait for the client. */
function unreadResponses(proxy: TestProxy): void {
  const response = message(Buffer.alloc(2 * MiB));
  const ids = Array.from({ length: 10 }, (_, at) => 2 * at + 1);
  const windows = new Map<number, number>([[0, 65_535]]);
  const windowOf = (id: number): number => windows.get(id) ?? WINDOW;
  for (const id of ids) {
    proxy.client.send(headers(id, request('/amend/A')), data(id, CALL, true));
    proxy.backend.send(headers(id, RESPONSE));
  }
  const send = (id: number, from: number, to: number): void => {
    for (let at = from; at < to; ) {
      for (const seen of proxy.backend.take())
        if (seen.type === WINDOW_UPDATE) windows.set(seen.id, windowOf(seen.id) + seen.payload.readUInt32BE(0));
      const size = Math.min(FRAME, to - at, windowOf(0), windowOf(id));
      if (size <= 0) return;
      for (const of of [0, id]) windows.set(of, windowOf(of) - size);
      proxy.backend.send(data(id, response.subarray(at, at + size)));
      at += size;
    }
  };
  for (const id of ids) send(id, 0, response.length - 1);
  for (const id of ids) send(id, response.length - 1, response.length);
}

/** Sends requests that do not end, until no more of them are copied. */
function unfinishedRequests(proxy: TestProxy): void {
  for (let id = 1, size = FRAME; size >= 1; id += 2) {
    const before = proxy.core.held.total;
    proxy.client.send(headers(id, request('/amend/A')), data(id, message(Buffer.alloc(size)).subarray(0, size)));
    if (proxy.core.held.total === before) size /= 2;
  }
}

/** Makes a call with a response of this many bytes. Returns what amendments skipped and what the client got. */
async function call(shared: SharedBudget, bytes: number): Promise<{ skipped: string[]; answer: string }> {
  const proxy = openProxy({ readAhead: MiB / 4, queueLimit: MiB, amend: () => Buffer.from('amended'), shared }, [
    4,
    2 * MiB,
  ]);
  proxy.client.send(windowUpdate(0, 2 * MiB), headers(1, request('/amend/A')), data(1, CALL, true));
  proxy.backend.send(headers(1, RESPONSE));
  const response = message(Buffer.alloc(bytes));
  for (let at = 0; at < response.length; at += FRAME) proxy.backend.send(data(1, response.subarray(at, at + FRAME)));
  await settled();
  const skipped = proxy.events.filter((event) => event.startsWith('skipped'));
  const answer = dataOf(proxy.client.take(), 1);
  proxy.core.destroy();
  return { skipped, answer: answer.subarray(5, 12).toString() };
}

describe.each([
  ['amended responses that it does not read', unreadResponses],
  ['requests that it does not finish', unfinishedRequests],
])('a client that makes the proxy hold %s', (_, fill) => {
  test.each([1, 2, 20])(
    'calls of other clients are amended while some clients hold as many bytes as they can (%d of them)',
    async (count) => {
      const shared = new SharedBudget(SHARED_LIMITS);
      const clients = Array.from({ length: count }, () => stalled(shared));
      for (const client of clients) fill(client);
      expect(await call(shared, 30_000)).toEqual({ skipped: [], answer: 'amended' });
      if (count <= 2) expect(await call(shared, 2 * MiB)).toEqual({ skipped: [], answer: 'amended' });
      // It does not keep the others from reading ahead either.
      if (count <= 2) expect(shared.queued.isFull).toBe(false);
      expect(shared.held.total).toBeLessThanOrEqual(SHARED_LIMITS.held.all + count * SHARED_LIMITS.held.reserved);
      for (const { core } of clients) core.destroy();
      expect(shared.held.total).toBe(0);
    },
  );
});
