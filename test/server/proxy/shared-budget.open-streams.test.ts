import { describe, expect, test } from 'vitest';
import { ErrorCode } from '../../../src/http2/errors.ts';
import { CONNECTION_LIMIT } from '../../../src/server/client-connections.ts';
import { SHARED_LIMITS } from '../../../src/server/proxy/serve.ts';
import { SharedBudget } from '../../../src/server/proxy/shared-budget.ts';
import { OK, headers, openProxy, request, resetsOf, rst } from '../../support/http2/wire.ts';

describe('streams of all connections', () => {
  const open = (shared: SharedBudget, ids: readonly number[]): ReturnType<typeof openProxy> => {
    const proxy = openProxy({ shared });
    for (const id of ids) proxy.client.send(headers(id, request('/pass/A')));
    return proxy;
  };
  const ids = Array.from({ length: 10 }, (_, at) => 2 * at + 1);

  test('streams of all connections are limited, and each connection has some regardless of the others', () => {
    const shared = new SharedBudget({ ...SHARED_LIMITS, streams: { reserved: 2, all: 3 } });
    const [greedy, other] = [open(shared, ids), open(shared, [1, 3, 5])];
    expect(resetsOf(greedy.client.take())).toEqual([11, 13, 15, 17, 19].map((id) => [id, ErrorCode.REFUSED_STREAM]));
    expect(resetsOf(other.client.take())).toEqual([[5, ErrorCode.REFUSED_STREAM]]);
    expect(greedy.events).toContain('refused streams');
  });

  test('streams free their places when they end, in each way, and when their connection ends', () => {
    const shared = new SharedBudget({ ...SHARED_LIMITS, streams: { reserved: 2, all: 3 } });
    const [greedy, other] = [open(shared, ids.slice(0, 5)), open(shared, [1, 3])];
    greedy.client.send(rst(1, ErrorCode.CANCEL));
    other.client.send(headers(5, request('/pass/A')));
    expect(resetsOf(other.client.take())).toEqual([]);
    greedy.backend.send(headers(3, OK, true), rst(3, ErrorCode.NO_ERROR));
    expect(shared.streams.beyond).toBe(2);
    greedy.core.destroy();
    expect(shared.streams.beyond).toBe(1);
    other.backend.events.closed(undefined);
    expect(shared.streams.beyond).toBe(0);
  });

  test('all connections together have at most 32,768 streams', () => {
    const { reserved, all: shared } = SHARED_LIMITS.streams;
    expect(CONNECTION_LIMIT * reserved + shared).toBeLessThanOrEqual(32_768);
  });
});
