import { describe, expect, test } from 'vitest';
import { ErrorCode } from '../../../src/http2/errors.ts';
import {
  frame,
  goawayOf,
  headers,
  openProxy,
  PING,
  PREFACE,
  request,
  startProxy,
  windowUpdate,
} from '../../support/http2/wire.ts';

const ping = frame(PING, 0, 0, Buffer.alloc(8));

describe('the first frame has to be SETTINGS (RFC 9113 3.4)', () => {
  test('a client whose first frame is not SETTINGS is disconnected', () => {
    const proxy = startProxy();
    proxy.client.send(PREFACE, windowUpdate(0, 1));
    expect(proxy.client.ended).toBe(true);
    expect(proxy.events).toEqual(['error client 1 the first frame is not SETTINGS']);
  });

  test('a backend whose first frame is not SETTINGS is disconnected with PROTOCOL_ERROR', () => {
    const proxy = startProxy();
    proxy.backend.send(ping);
    expect(goawayOf(proxy.backend.take())?.code).toBe(ErrorCode.PROTOCOL_ERROR);
    expect(proxy.backend.ended).toBe(true);
  });

  test('a local server whose first frame is not SETTINGS is disconnected, and the client stays connected', () => {
    const proxy = openProxy();
    proxy.client.send(headers(1, request('/handle/A')));
    proxy.locals[0]!.send(ping);
    expect(proxy.locals[0]!.destroyed).toBe(true);
    expect(proxy.client.ended).toBe(false);
  });
});
