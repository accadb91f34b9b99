import { performance } from 'node:perf_hooks';
import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { TURN_COST } from '../../../src/server/proxy/dispatch.ts';
import { Turns } from '../../../src/server/proxy/turns.ts';
import {
  DATA,
  data,
  frame,
  HEADERS,
  headers,
  message,
  OK,
  openProxy,
  PING,
  RESPONSE,
  request,
  typesOf,
  withStream,
} from '../../support/http2/wire.ts';

const ping = frame(PING, 0, 0, Buffer.alloc(8));
const many = (count: number, bytes: Buffer): Buffer => Buffer.concat(Array.from({ length: count }, () => bytes));

/** Uses the processor for this many milliseconds. */
function work(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

describe('deferred work', () => {
  test('deferred work of many connections takes a part of each turn of the event loop, and each connection takes its turn', async () => {
    const turns = new Turns();
    const done = [0, 0, 0];
    let left = 30;
    const actions = done.map(
      (_, at) =>
        function act(): void {
          work(1);
          done[at]! += 1;
          if ((left -= 1) > 0) turns.add(act);
        },
    );
    for (const action of actions) turns.add(action);
    let most = 0;
    for (let before = 30; left > 0; before = left) {
      await turn();
      most = Math.max(most, before - left);
    }
    expect(most).toBeLessThanOrEqual(3);
    expect(Math.max(...done) - Math.min(...done)).toBeLessThanOrEqual(1);
  });

  test('deferred work of a connection that has ended is not done', async () => {
    const turns = new Turns();
    let done = 0;
    const action = (): void => void (done += 1);
    turns.add(action);
    turns.delete(action);
    await turn();
    expect(done).toBe(0);
  });
});

describe('a read with many frames', () => {
  test.each(['client', 'backend'] as const)(
    'a read of many frames from the %s is handled in several turns of the event loop',
    async (side) => {
      const proxy = openProxy();
      proxy.client.take();
      proxy.backend.take();
      const answered = (): number => proxy[side].take().filter(({ type }) => type === PING).length;
      proxy[side].send(many(3 * TURN_COST, ping));
      expect(answered()).toBe(TURN_COST);
      expect(proxy[side].paused).toBe(true);
      while (proxy[side].paused) await turn();
      expect(answered()).toBe(2 * TURN_COST);
    },
  );

  test('headers of a response count as one frame, so that all responses of a burst go to the client in one turn', () => {
    const proxy = openProxy();
    const ids = Array.from({ length: 100 }, (_, at) => 2 * at + 1);
    for (const id of ids) proxy.client.send(headers(id, request('/pass/A'), true));
    proxy.backend.send(Buffer.concat(ids.map((id) => headers(id, RESPONSE, true))));
    expect(typesOf(proxy.client.take()).filter((type) => type === HEADERS)).toHaveLength(100);
  });

  test('a new call in a read counts as many frames', () => {
    const proxy = openProxy();
    const calls = Array.from({ length: 100 }, (_, at) => headers(2 * at + 1, request('/pass/A'), true));
    proxy.client.send(Buffer.concat(calls));
    expect(typesOf(proxy.backend.take()).filter((type) => type === HEADERS)).toHaveLength(TURN_COST / 16);
  });

  test('a read with many frames is handled to its end if the backend closes after it', () => {
    const proxy = withStream('/pass/A', true);
    proxy.client.take();
    const parts = many(2 * TURN_COST, data(1, message(Buffer.of(7))));
    proxy.backend.send(Buffer.concat([headers(1, RESPONSE), parts, headers(1, OK, true)]));
    expect(proxy.backend.paused).toBe(true);
    proxy.backend.events.closed(undefined);
    const seen = proxy.client.take();
    expect(seen.filter(({ type }) => type === DATA)).toHaveLength(2 * TURN_COST);
    expect(seen.filter(({ type }) => type === HEADERS)).toHaveLength(2);
    expect(proxy.events[0]).toBe('/pass/A pass answered 0');
  });
});
