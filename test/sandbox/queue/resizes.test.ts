import { beforeEach, describe, expect, test } from 'vitest';
import { type ShimError, Reason } from '../../../src/core/errors.ts';
import { Code } from '../../../src/core/grpc.ts';
import type { ResizeEvent } from '../../../src/sandbox/queue/resize-table.ts';
import { asked, db, outcome, stepRecord, web } from '../../support/resize/fake-resizes.ts';
import { ResizeQueue, memoryInUse, noCgroup } from '../../support/resize/resize-queue.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';

let queue: ResizeQueue;
beforeEach(() => {
  queue = new ResizeQueue();
});

describe('a resize', () => {
  test('a resize reports its states and steps as events, and returns the outcome', async () => {
    const watch = queue.resizes.watch();
    const answer = queue.resize();
    const call = await queue.core.next();
    expect(call.sandboxId).toBe(web.sandboxId);
    expect([...call.desired.containers]).toEqual([['app', { memory: 128 * MiB }]]);
    expect(call.options).toMatchObject({ dryRun: false, deadline: queue.clock.now() + 5000 });
    call.succeed();
    expect(await answer).toMatchObject({ ...outcome, state: 'Completed', pod: web, tries: 1, reason: undefined });
    const events: ResizeEvent['what'][] = [];
    for (let count = 0; count < 4; count += 1) events.push(((await watch.next()).value as ResizeEvent).what);
    expect(events).toMatchObject([
      { kind: 'state', state: 'Proposed' },
      { kind: 'state', state: 'InProgress' },
      { kind: 'step', record: stepRecord },
      { kind: 'state', state: 'Completed' },
    ]);
    expect(queue.resizes.counts).toEqual({ proposed: 1, infeasible: 0, completed: 1, canceled: 0 });
    expect(queue.resizes.newestOf(web.sandboxId)?.state).toBe('Completed');
    expect(queue.store.records.size).toBe(0);
  });

  test('KEP-1287: a resize that does not fit yet becomes Deferred, and Canceled with the reason if it does not allow a retry', async () => {
    const watch = queue.resizes.watch();
    const answer = queue.resize();
    (await queue.core.next()).fail(memoryInUse);
    const error = await answer.catch((reason: unknown) => reason);
    expect(error).toMatchObject({ reason: 'MEMORY_NOT_RECLAIMABLE', code: 9, message: 'app: 100 in use' });
    const id = (error as ShimError).context.resize ?? '';
    expect((error as ShimError).context).toEqual({ found: '100', resize: id });
    expect(queue.resizes.get(id)).toMatchObject({
      state: 'Canceled',
      reason: 'MEMORY_NOT_RECLAIMABLE',
      message: 'app: 100 in use; the request does not allow a retry (defer)',
      nextTryAt: undefined,
    });
    const events: ResizeEvent['what'][] = [];
    for (let count = 0; count < 4; count += 1) events.push(((await watch.next()).value as ResizeEvent).what);
    const states = ['Proposed', 'InProgress', 'Deferred', 'Canceled'];
    expect(events).toMatchObject(states.map((state) => ({ kind: 'state', state })));
    expect(queue.resizes.counts).toEqual({ proposed: 1, infeasible: 0, completed: 0, canceled: 1 });
    expect([queue.clock.next, queue.store.records.size, queue.unfinished]).toEqual([undefined, 0, 0]);
  });

  test('KEP-1287: a resize that is rejected becomes Infeasible and is counted, and its error contains its id', async () => {
    const answer = queue.resize();
    (await queue.core.next()).fail(noCgroup);
    const error = await answer.catch((reason: unknown) => reason);
    const id = (error as ShimError).context.resize ?? '';
    expect(queue.resizes.get(id)).toMatchObject({ state: 'Infeasible', reason: 'CGROUP_UNAVAILABLE' });
    expect(queue.resizes.counts).toEqual({ proposed: 1, infeasible: 1, completed: 0, canceled: 0 });
  });

  test('a resize that fails with an internal error becomes Infeasible, without the text of the error', async () => {
    const answer = queue.resize();
    (await queue.core.next()).fail(new TypeError('PASSWORD=hunter2'));
    await expect(answer).rejects.toThrow(TypeError);
    expect(JSON.stringify(queue.resizes.newestOf(web.sandboxId))).not.toContain('hunter2');
    expect(queue.resizes.newestOf(web.sandboxId)).toMatchObject({ state: 'Infeasible', reason: 'INTERNAL' });
  });

  test.each([
    [14, 'UNAVAILABLE', Reason.BACKEND_UNAVAILABLE, Code.UNAVAILABLE],
    [4, 'DEADLINE_EXCEEDED', Reason.BACKEND_UNAVAILABLE, Code.UNAVAILABLE],
    [2, 'UNKNOWN', Reason.BACKEND_FAILED, Code.INTERNAL],
  ])(
    'a resize that the backend rejects with code %i has the code and text of the backend in its error',
    async (code, name, reason, own) => {
      const answer = queue.resize();
      (await queue.core.next()).fail(Object.assign(new Error('x'), { code, details: 'runc says no', metadata: {} }));
      await expect(answer).rejects.toMatchObject({ reason, code: own, message: `the backend: ${name}: runc says no` });
    },
  );

  test('a resize with an invalid value is counted as Infeasible and is not applied', async () => {
    await expect(queue.resize('lots')).rejects.toMatchObject({ reason: 'INVALID_VALUE' });
    expect(queue.core.waiting).toBe(0);
    expect(queue.resizes.counts).toEqual({ proposed: 1, infeasible: 1, completed: 0, canceled: 0 });
  });

  test('a dry run is neither stored nor counted', async () => {
    const trial = queue.resizes.dryRun(web, asked('1Gi'), { deadline: 7, defer: false });
    const call = await queue.core.next();
    expect(call.options).toEqual({ dryRun: true, deadline: 7, waits: false });
    call.succeed();
    const none = { containers: {} };
    expect(await trial).toEqual({ ...outcome, memoryRequests: { before: none, after: none } });
    expect(queue.resizes.newestOf(web.sandboxId)).toBeUndefined();
    expect(queue.resizes.counts.proposed).toBe(0);
  });
});

describe('queue limits', () => {
  test('rejects a resize above the maximum number of resizes in progress or deferred', async () => {
    queue = new ResizeQueue({ active: 1 });
    const { id } = await queue.deferred();
    await expect(queue.resize('1Gi', { pod: db })).rejects.toMatchObject({ code: 8, reason: 'TOO_MANY_RESIZES' });
    await queue.resizes.cancel(id);
    const answer = queue.resize('1Gi', { pod: db });
    (await queue.core.next()).succeed();
    await answer;
  });

  test('drops the oldest ended resizes above the maximum number', async () => {
    queue = new ResizeQueue({ ended: 2 });
    const ids: string[] = [];
    for (const pod of [web, db, db]) {
      const answer = queue.resize('1Gi', { pod });
      (await queue.core.next()).succeed();
      ids.push((await answer).id);
    }
    expect(() => queue.resizes.get(ids[0] ?? '')).toThrow(
      expect.objectContaining({ code: 5, reason: 'UNKNOWN_RESIZE' }),
    );
    expect(queue.resizes.newestOf(web.sandboxId)).toBeUndefined();
    expect([queue.resizes.get(ids[1] ?? '').state, queue.resizes.newestOf(db.sandboxId)?.id]).toEqual([
      'Completed',
      ids[2],
    ]);
  });

  test('limits the watchers of one client, so that other clients can still watch', () => {
    queue = new ResizeQueue({ watchers: 8 });
    const taken = (owner?: string): number => {
      for (let count = 0; ; count += 1)
        try {
          queue.resizes.watch(undefined, { owner });
        } catch (error) {
          expect(error).toMatchObject({ code: 8, reason: 'TOO_MANY_WATCHERS' });
          return count;
        }
    };
    expect([taken('process 7'), taken('process 8'), taken('process 7'), taken('process 9')]).toEqual([4, 2, 0, 1]);
    // The last one is left to the shim itself.
    expect(taken()).toBe(1);
  });

  test('limits the number of watchers, and the unread events of each watcher', async () => {
    queue = new ResizeQueue({ watchers: 1, unreadEvents: 3 });
    const slow = queue.resizes.watch();
    expect(() => queue.resizes.watch()).toThrow(expect.objectContaining({ code: 8, reason: 'TOO_MANY_WATCHERS' }));
    const answer = queue.resize();
    (await queue.core.next()).succeed();
    await answer;
    await expect(slow.next()).rejects.toMatchObject({ code: 8, reason: 'WATCHER_TOO_SLOW' });
    queue.resizes.watch().end();
    queue.resizes.watch();
  });
});
