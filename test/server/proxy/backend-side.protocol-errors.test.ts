import { describe, expect, test } from 'vitest';
import { ErrorCode } from '../../../src/http2/errors.ts';
import {
  DATA,
  PADDED,
  PUSH_PROMISE,
  RESPONSE,
  data,
  frame,
  goawayOf,
  headers,
  openProxy,
  request,
  u32,
  withStream,
} from '../../support/http2/wire.ts';

describe('a protocol violation of the backend ends its connection, and its calls with UNAVAILABLE', () => {
  test.each<[what: string, code: number, bytes: Buffer]>([
    ['a frame on an idle stream', ErrorCode.PROTOCOL_ERROR, headers(5, RESPONSE)],
    ['a frame on a stream that the backend opens', ErrorCode.PROTOCOL_ERROR, headers(2, RESPONSE)],
    ['PUSH_PROMISE', ErrorCode.PROTOCOL_ERROR, frame(PUSH_PROMISE, 4, 1, u32(2))],
    [
      'more DATA than the connection window',
      ErrorCode.FLOW_CONTROL_ERROR,
      Buffer.concat(Array.from({ length: 5 }, () => data(1, Buffer.alloc(16_384)))),
    ],
    ['a frame longer than allowed', ErrorCode.FRAME_SIZE_ERROR, data(1, Buffer.alloc(16_385))],
    ['padding longer than DATA', ErrorCode.PROTOCOL_ERROR, frame(DATA, PADDED, 1, Buffer.of(5, 1, 2))],
  ])('ends the backend connection, and its calls with UNAVAILABLE, after %s', (_, code, bytes) => {
    const proxy = withStream();
    proxy.backend.send(bytes);
    expect(goawayOf(proxy.backend.take())?.code).toBe(code);
    expect(proxy.backend.ended).toBe(true);
    expect(goawayOf(proxy.client.take())).toEqual({ last: 1, code: ErrorCode.NO_ERROR });
    expect(proxy.events).toContain('/pass/A pass unavailable 14');
    expect(proxy.client.ended).toBe(true);
  });

  test.each(['pass', 'amend', 'each'])(
    'ends the backend connection after more DATA than the window of a stream (%s)',
    (route) => {
      const proxy = openProxy({}, [4, 1000]);
      proxy.client.send(headers(1, request(`/${route}/A`)));
      proxy.backend.send(headers(1, RESPONSE), data(1, Buffer.alloc(1000)));
      expect(goawayOf(proxy.backend.take())).toBeUndefined();
      proxy.client.send(headers(3, request(`/${route}/B`)));
      proxy.backend.take();
      proxy.backend.send(headers(3, RESPONSE), data(3, Buffer.alloc(1001)));
      expect(goawayOf(proxy.backend.take())?.code).toBe(ErrorCode.FLOW_CONTROL_ERROR);
      expect(proxy.events).toContain(`/${route}/B ${route === 'each' ? 'amend-each' : route} unavailable 14`);
    },
  );
});
