import { afterEach, describe, expect, test, vi } from 'vitest';
import { TURN_COST } from '../../../src/server/proxy/dispatch.ts';
import type { SeenFrame } from '../../support/http2/wire.ts';
import {
  data,
  END_STREAM,
  fieldsOf,
  frame,
  GOAWAY,
  goaway,
  HEADERS,
  headers,
  message,
  OK,
  openProxy,
  PING,
  PREFACE,
  RESPONSE,
  request,
  SETTINGS,
  SETTINGS_ACK,
  settings,
  settled,
  startProxy,
  typesOf,
  windowUpdate,
  withStream,
} from '../../support/http2/wire.ts';

afterEach(() => void vi.useRealTimers());

describe('graceful shutdown', () => {
  const last = 2 ** 31 - 1;
  const shutdownPing = frame(PING, 1, 0, Buffer.from('shutdown'));
  const numbersOf = (frames: readonly SeenFrame[]) =>
    frames.filter(({ type }) => type === GOAWAY).map(({ payload }) => payload.readUInt32BE(0));

  /** Advances the time, and runs the timers that are due and the following turn of the event loop. */
  const elapse = (milliseconds: number): void => {
    vi.advanceTimersByTime(milliseconds);
    vi.advanceTimersToNextTimer();
  };

  test('upgrade: a graceful shutdown sends GOAWAY, serves the calls that the client has begun, then closes both ends', () => {
    const proxy = openProxy();
    proxy.client.send(headers(1, request('/pass/A')), headers(3, request('/handle/B')));
    proxy.client.take();
    proxy.core.shutdown();
    const sent = proxy.client.take();
    expect(typesOf(sent)).toEqual([GOAWAY, PING]);
    expect(numbersOf(sent)).toEqual([last]);
    expect(sent[1]!.flags).toBe(0);
    proxy.backend.take();
    // The client has sent this stream before it received GOAWAY.
    proxy.client.send(headers(5, request('/pass/C'), true));
    expect(typesOf(proxy.backend.take())).toEqual([HEADERS]);
    proxy.client.send(frame(PING, 1, 0, Buffer.from('12345678')));
    expect(proxy.client.take()).toEqual([]);
    proxy.client.send(shutdownPing);
    expect(numbersOf(proxy.client.take())).toEqual([5]);
    proxy.client.send(headers(7, request('/pass/D'), true));
    expect(proxy.backend.take()).toEqual([]);
    for (const id of [1, 5]) proxy.backend.send(headers(id, RESPONSE), headers(id, OK, true));
    expect(proxy.client.ended).toBe(false);
    proxy.locals[0]!.send(settings(), headers(3, RESPONSE), headers(3, OK, true));
    expect(proxy.client.ended).toBe(true);
    expect(proxy.backend.ended).toBe(true);
    expect(proxy.locals[0]!.ended).toBe(true);
  });

  test('closes an idle connection once the client has acknowledged the PING', () => {
    const proxy = openProxy();
    proxy.core.shutdown();
    proxy.core.shutdown();
    expect(typesOf(proxy.client.take())).toEqual([GOAWAY, PING]);
    expect(proxy.client.ended).toBe(false);
    proxy.client.send(shutdownPing);
    expect(numbersOf(proxy.client.take())).toEqual([0]);
    expect(proxy.client.ended).toBe(true);
  });

  test('sends the last stream id after a timeout if the client does not acknowledge the PING', () => {
    vi.useFakeTimers();
    const proxy = openProxy();
    proxy.client.send(headers(1, request('/pass/A')));
    proxy.core.shutdown();
    proxy.client.take();
    elapse(1000);
    expect(numbersOf(proxy.client.take())).toEqual([1]);
    proxy.backend.send(headers(1, RESPONSE), headers(1, OK, true));
    expect(proxy.client.ended).toBe(true);
  });

  test('upgrade: a graceful shutdown opens a connection fully before it sends GOAWAY, so that its client loses no call', () => {
    const proxy = startProxy();
    proxy.client.send(PREFACE, settings(), headers(1, request('/pass/A'), true));
    proxy.core.shutdown();
    expect(proxy.client.ended).toBe(false);
    proxy.backend.send(settings());
    // GOAWAY in the same read would make grpc-js refuse its waiting calls.
    expect(typesOf(proxy.client.take())).toEqual([SETTINGS]);
    proxy.client.send(SETTINGS_ACK, headers(3, request('/pass/B'), true));
    expect(typesOf(proxy.client.take())).toEqual([GOAWAY, PING]);
    proxy.client.send(shutdownPing);
    expect(numbersOf(proxy.client.take())).toEqual([3]);
    proxy.backend.send(headers(3, RESPONSE), headers(3, OK, true));
    proxy.client.take();
    proxy.backend.send(headers(1, RESPONSE), headers(1, OK, true));
    expect(typesOf(proxy.client.take())).toEqual([HEADERS, HEADERS]);
    expect(proxy.client.ended).toBe(true);
  });

  test('closes a connection whose backend does not answer, so that its client makes its calls on another one', () => {
    vi.useFakeTimers();
    const proxy = startProxy();
    proxy.client.send(PREFACE, settings(), headers(1, request('/pass/A'), true));
    proxy.core.shutdown();
    elapse(2999);
    expect(proxy.client.ended).toBe(false);
    elapse(1);
    const sent = proxy.client.take();
    expect(typesOf(sent)).toEqual([SETTINGS, GOAWAY]);
    expect(numbersOf(sent)).toEqual([0]);
    expect([proxy.client.ended, proxy.backend.ended]).toEqual([true, true]);
  });

  test('sends GOAWAY after a timeout if the client does not acknowledge the SETTINGS', () => {
    vi.useFakeTimers();
    const proxy = startProxy();
    proxy.client.send(PREFACE, settings());
    proxy.backend.send(settings());
    proxy.core.shutdown();
    expect(typesOf(proxy.client.take())).toEqual([SETTINGS]);
    vi.advanceTimersByTime(999);
    expect(proxy.client.take()).toEqual([]);
    elapse(1);
    expect(typesOf(proxy.client.take())).toEqual([GOAWAY, PING]);
    proxy.client.send(SETTINGS_ACK);
    expect(proxy.client.take()).toEqual([]);
    proxy.client.send(shutdownPing);
    expect(numbersOf(proxy.client.take())).toEqual([0]);
  });

  test('announces no higher stream than a GOAWAY that was sent while it waited for the client', () => {
    vi.useFakeTimers();
    const proxy = startProxy();
    proxy.client.send(PREFACE, settings(), headers(1, request('/pass/A'), true));
    proxy.backend.send(settings());
    proxy.core.shutdown();
    proxy.backend.send(goaway(1, 0));
    elapse(1000);
    expect(numbersOf(proxy.client.take())).toEqual([1, 1]);
  });

  test('serves calls that arrived in time and are read after the timeout, because the event loop was busy', () => {
    vi.useFakeTimers();
    const proxy = openProxy();
    proxy.core.shutdown();
    proxy.client.take();
    // In a turn of the event loop, timers run before reads, and setImmediate after them.
    vi.advanceTimersToNextTimer();
    expect(proxy.client.take()).toEqual([]);
    proxy.client.send(headers(1, request('/pass/A'), true));
    vi.advanceTimersToNextTimer();
    expect(numbersOf(proxy.client.take())).toEqual([1]);
    proxy.backend.send(headers(1, RESPONSE), headers(1, OK, true));
    expect(typesOf(proxy.client.take())).toEqual([HEADERS, HEADERS]);
  });

  test('ends the connection of a client that sends without pause, so that its frames always wait for a later turn', () => {
    vi.useFakeTimers();
    const proxy = withStream('/pass/A');
    const frames = Buffer.concat(Array.from({ length: TURN_COST + 1 }, () => windowUpdate(0, 1)));
    const goaways: number[] = [];
    // Once in each turn of the event loop, what the client has sent meanwhile is read.
    const read = (): void => {
      if (!proxy.client.paused) proxy.client.send(frames);
      setImmediate(read);
    };
    proxy.core.shutdown();
    proxy.client.take();
    read();
    for (; proxy.clock < 3000 && goaways.length === 0; proxy.clock += 1) {
      vi.advanceTimersByTime(1);
      goaways.push(...numbersOf(proxy.client.take()));
    }
    expect(goaways).toEqual([1]);
    expect(proxy.clock).toBeGreaterThanOrEqual(2000);
    proxy.backend.send(headers(1, RESPONSE), headers(1, OK, true));
    expect([proxy.client.ended, proxy.backend.ended]).toEqual([true, true]);
  });

  test('a graceful shutdown ends a watch with UNAVAILABLE once no other stream is open', () => {
    const proxy = openProxy();
    proxy.client.send(headers(1, request('/pass/Watch'), true), headers(3, request('/pass/A'), true));
    proxy.backend.send(headers(1, RESPONSE), data(1, message(Buffer.from('event'))));
    proxy.core.shutdown();
    proxy.client.send(shutdownPing);
    proxy.client.take();
    expect(proxy.client.ended).toBe(false);
    proxy.backend.send(headers(3, RESPONSE), headers(3, OK, true));
    const frames = proxy.client.take();
    expect(frames.map(({ id }) => id)).toEqual([3, 3, 1]);
    expect(fieldsOf(frames[2]!)).toMatchObject({
      'grpc-status': '14',
      'grpc-message': 'cri-resize-shim is being restarted: call again',
    });
    expect(proxy.client.ended).toBe(true);
    expect(proxy.events).toContain('/pass/Watch pass unavailable 14');
  });

  test.each(['/pass/Watch', '/each/Watch'])('ends the watch %s of a client that does not read', (path) => {
    const proxy = openProxy({ amendMessage: (_, bytes) => bytes, readAhead: 1000 }, [4, 10]);
    proxy.client.send(
      headers(1, request(path), true),
      headers(3, request(path), true),
      headers(5, request(path), true),
    );
    const event = message(Buffer.alloc(20, 'e'));
    for (const id of [1, 3, 5])
      proxy.backend.send(headers(id, RESPONSE), data(id, event.subarray(0, 10)), data(id, event.subarray(10)));
    // Stream 3 has ended, behind DATA that the client does not read. Stream 5 ends in the middle of a message.
    proxy.backend.send(headers(3, OK, true), data(5, event.subarray(0, 12)));
    proxy.client.take();
    proxy.core.shutdown();
    proxy.client.send(shutdownPing);
    const ends = proxy.client.take().filter(({ type }) => type === HEADERS);
    expect(ends.map((seen) => [seen.id, seen.flags & END_STREAM, fieldsOf(seen)['grpc-status']])).toEqual([
      [1, END_STREAM, '14'],
      [3, END_STREAM, '14'],
      [5, END_STREAM, '14'],
    ]);
    expect([proxy.client.ended, proxy.backend.ended]).toEqual([true, true]);
    expect(proxy.events.filter((line) => line.includes('unavailable 14'))).toHaveLength(3);
  });

  test('ends a watch of a client that does not read once the amendment of its message has timed out', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const proxy = openProxy({ amendMessage: () => new Promise(() => undefined) }, [4, 10]);
    proxy.client.send(headers(1, request('/each/Watch'), true));
    proxy.backend.send(headers(1, RESPONSE), data(1, message(Buffer.from('event'))));
    proxy.core.shutdown();
    proxy.client.send(shutdownPing);
    expect(proxy.client.ended).toBe(false);
    vi.advanceTimersByTime(2000);
    await settled();
    expect(fieldsOf(proxy.client.take().at(-1)!)).toMatchObject({ 'grpc-status': '14' });
    expect(proxy.client.ended).toBe(true);
  });
});
