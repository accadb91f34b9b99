import { describe, expect, test } from 'vitest';
import { ErrorCode } from '../../../src/http2/errors.ts';
import {
  data,
  dataOf,
  fieldsOf,
  frame,
  goaway,
  goawayOf,
  HEADERS,
  headers,
  OK,
  openProxy,
  RESPONSE,
  request,
  SETTINGS,
  settings,
  typesOf,
  u32,
  WINDOW_UPDATE,
  windowUpdate,
} from '../../support/http2/wire.ts';

describe('a local server', () => {
  test('a local server is connected for the first handled call, and again after it has sent GOAWAY', () => {
    const proxy = openProxy();
    proxy.client.send(headers(1, request('/pass/A'), true));
    expect(proxy.locals).toHaveLength(0);
    proxy.client.send(headers(3, request('/handle/B')));
    proxy.client.send(headers(5, request('/handle/C')));
    expect(proxy.locals).toHaveLength(1);
    proxy.locals[0]!.send(settings(), goaway(5, 0));
    proxy.client.send(headers(7, request('/handle/D')));
    expect(proxy.locals).toHaveLength(2);
    expect(typesOf(proxy.locals[1]!.take())).toEqual([SETTINGS, WINDOW_UPDATE, HEADERS]);
    // The first connection still answers. A call that it leaves unanswered ends with UNAVAILABLE.
    proxy.locals[0]!.send(headers(3, RESPONSE), headers(3, OK, true));
    proxy.client.take();
    proxy.locals[0]!.events.closed(undefined);
    const [answer, ...others] = proxy.client.take();
    expect(others).toEqual([]);
    expect([answer!.id, fieldsOf(answer!)['grpc-status']]).toEqual([5, '14']);
    expect(proxy.client.ended).toBe(false);
  });

  test('a local server that violates the protocol loses only its own connection', () => {
    const proxy = openProxy();
    proxy.client.send(headers(1, request('/handle/A')), headers(3, request('/pass/B')));
    proxy.client.take();
    proxy.locals[0]!.send(frame(SETTINGS, 0, 0, Buffer.alloc(5)));
    expect(proxy.locals[0]!.destroyed).toBe(true);
    expect(fieldsOf(proxy.client.take()[0]!)['grpc-status']).toBe('14');
    proxy.backend.send(headers(3, RESPONSE));
    expect(typesOf(proxy.client.take())).toEqual([HEADERS]);
  });

  test('a local server uses no part of the client’s window that was granted to the backend', () => {
    const proxy = openProxy();
    proxy.client.send(headers(1, request('/handle/A'), true), headers(3, request('/pass/B'), true));
    const local = proxy.locals[0]!;
    local.take();
    local.send(settings(), headers(1, RESPONSE), data(1, Buffer.alloc(1000)), headers(1, OK, true));
    // The local server gets its connection window back at once.
    expect(local.take().find(({ type, id }) => type === WINDOW_UPDATE && id === 0)!.payload).toEqual(u32(1000));
    // The backend sends as much as it was granted. The last 1000 bytes wait.
    const sent = Buffer.alloc(65_535, 'b');
    proxy.backend.send(headers(3, RESPONSE));
    for (let at = 0; at < sent.length; at += 16_384) proxy.backend.send(data(3, sent.subarray(at, at + 16_384)));
    proxy.client.send(windowUpdate(3, 100_000));
    proxy.backend.take();
    proxy.client.take();
    // The backend gets no window back until everything that it has sent fits into the client's window.
    proxy.client.send(windowUpdate(0, 400));
    expect(dataOf(proxy.client.take(), 3)).toHaveLength(400);
    expect(proxy.backend.take()).toEqual([]);
    proxy.client.send(windowUpdate(0, 1000));
    expect(dataOf(proxy.client.take(), 3)).toHaveLength(600);
    expect(proxy.backend.take()).toEqual([{ type: WINDOW_UPDATE, flags: 0, id: 0, payload: u32(400) }]);
  });

  test('a client that exceeds its connection window with a local request is disconnected with FLOW_CONTROL_ERROR', () => {
    const proxy = openProxy();
    proxy.client.send(headers(1, request('/handle/A')));
    const most = Array.from({ length: 4 }, () => data(1, Buffer.alloc(16_384)));
    proxy.client.send(...most);
    expect(goawayOf(proxy.client.take())?.code).toBe(ErrorCode.FLOW_CONTROL_ERROR);
  });
});
