import { once } from 'node:events';
import { connect } from 'node:http2';
import { createConnection } from 'node:net';
import { type ServiceError } from '@grpc/grpc-js';
import { describe, expect, test } from 'vitest';
import { Code } from '../../../src/core/grpc.ts';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { type Answer, refusal, refusalOf } from '../../support/resize-api/client.ts';

import { TestApi, byUid, toMemory } from '../../support/resize-api/resize-api.ts';
import { view } from '../../support/resize-api/view.ts';

const shim = new TestApi(view);

describe('WatchResizes', () => {
  test('WatchResizes ends a watch that is not read, with a reason, and continues other watches', async () => {
    // Plain HTTP/2, because a client of grpc-js reads ahead without limit.
    const session = connect('http://localhost', { createConnection: () => createConnection(shim.path) });
    const slow = session.request({
      ':method': 'POST',
      ':path': '/criresize.v1alpha1.ResizeService/WatchResizes',
      'content-type': 'application/grpc',
      te: 'trailers',
    });
    slow.end(Buffer.alloc(5));
    await once(slow, 'response');
    const fast = await shim.watch();
    const seen: Answer[] = [];
    fast.on('data', (event: Answer) => seen.push(event));
    expect(await refusal(once(shim.client.watch({}), 'data'))).toMatchObject({ code: 8, reason: 'TOO_MANY_WATCHERS' });
    shim.lines.length = 0;
    const isDropped = (): boolean => shim.lines.some(({ method }) => String(method).endsWith('/WatchResizes'));
    // Long messages fill the client's window quickly.
    const long = new ShimError(Code.FAILED_PRECONDITION, Reason.CGROUP_UNAVAILABLE, 'x'.repeat(2000));
    let answered = 0;
    for (; !isDropped(); answered += 1) {
      const answer = refusal(shim.client.call('ResizePod', { pod: byUid, containers: toMemory('64Mi') }));
      (await shim.core.next()).fail(long);
      expect((await answer).reason).toBe('CGROUP_UNAVAILABLE');
      expect(answered).toBeLessThan(200);
    }
    expect(shim.lines.find(({ method }) => String(method).endsWith('/WatchResizes'))).toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
    });
    const trailers = once(slow, 'trailers') as Promise<[Record<string, string>]>;
    slow.resume();
    const [{ 'grpc-status': code, 'grpc-message': message, 'grpc-status-details-bin': details = '' }] = await trailers;
    expect([code, message]).toEqual(['8', expect.stringContaining('watch%20again') as unknown]);
    expect(Buffer.from(details, 'base64').toString()).toContain('WATCHER_TOO_SLOW');
    session.close();
    while (seen.length < answered * 3) await once(fast, 'data');
    fast.cancel();
  });

  test('accepts a new watch when another client has disconnected', async () => {
    const [one, two] = [await shim.watch(), await shim.watch()];
    const gone = (): number => shim.lines.filter(({ code }) => code === 'CANCELLED').length;
    one.cancel();
    two.cancel();
    while (gone() < 2) await new Promise(setImmediate);
    (await shim.watch()).cancel();
  });

  test('ends all watches when the shim stops', async () => {
    const watch = await shim.watch();
    const error = new Promise<ServiceError>((resolve) => watch.once('error', resolve));
    watch.resume();
    await shim.resizes.close();
    expect(refusalOf(await error)).toMatchObject({ code: 14, reason: 'STOPPING' });
    await shim.api.close(10_000);
    await expect(shim.client.call('ListPods', {})).rejects.toMatchObject({ code: 14 });
  });
});
