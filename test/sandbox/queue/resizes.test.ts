import { beforeEach, describe, expect, test } from 'vitest';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { Code } from '../../../src/core/grpc.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { ResizeHistory } from '../../../src/sandbox/history/history.ts';
import { criRequester } from '../../../src/sandbox/history/history-entry.ts';
import { amountField, NewestValues } from '../../../src/sandbox/history/newest-values.ts';
import type { ResizeEvent } from '../../../src/sandbox/queue/resize-table.ts';
import { retryDelay } from '../../../src/sandbox/queue/retries.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';
import type { CoreCall } from '../../support/resize/fake-resizes.ts';
import {
  asked,
  createResizes,
  db,
  FakeCore,
  FakeStore,
  outcome,
  reached,
  stepRecord,
  web,
} from '../../support/resize/fake-resizes.ts';
import {
  diskFull,
  memoryInUse,
  noBackend,
  noCgroup,
  noPod,
  notRecovered,
  podEnded,
  ResizeQueue,
  starting,
  staysGuaranteed,
} from '../../support/resize/resize-queue.ts';

let queue: ResizeQueue;

describe('states and bounds of the queue', () => {
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
        await expect(answer).rejects.toMatchObject({
          reason,
          code: own,
          message: `the backend: ${name}: runc says no`,
        });
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
      // The last place is reserved for the shim itself.
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
});

describe('a deferred resize', () => {
  beforeEach(() => {
    queue = new ResizeQueue();
  });

  test('a deferred resize is retried with growing delays until it fits', async () => {
    const { id, state, reason, nextTryAt } = await queue.deferred();
    expect({ state, reason, wait: (nextTryAt ?? 0) - queue.clock.wallTime() }).toEqual({
      state: 'Deferred',
      reason: 'MEMORY_NOT_RECLAIMABLE',
      wait: 750,
    });
    const waits: (number | undefined)[] = [];
    for (const error of [memoryInUse, noBackend, memoryInUse, memoryInUse, memoryInUse, memoryInUse, memoryInUse]) {
      waits.push(queue.clock.next);
      expect(queue.clock.pass(queue.clock.next ?? 0)).toBe(1);
      const call = await queue.core.next();
      expect(call.options.deadline).toBe(queue.clock.now() + 30_000);
      call.fail(error);
      await reached(queue.resizes, id, 'Deferred');
    }
    expect(waits).toEqual([750, 1500, 3000, 6000, 12_000, 24_000, 45_000]);
    queue.clock.pass(45_000);
    (await queue.core.next()).succeed();
    expect(await reached(queue.resizes, id, 'Completed')).toMatchObject({
      tries: 9,
      after: outcome.after,
      reason: undefined,
    });
    expect(queue.clock.next).toBeUndefined();
    expect([queue.store.records.size, queue.unfinished]).toEqual([0, 0]);
  });

  test('KEP-6030: a deferred shrink that stored files block is retried at least every five seconds', async () => {
    const answer = queue.resize('64Mi', { defer: true });
    const stored = new ShimError(Code.FAILED_PRECONDITION, Reason.VOLUME_IN_USE, 'volume cache stores 200');
    (await queue.core.next()).fail(stored);
    const { id } = await answer;
    const waits: (number | undefined)[] = [];
    for (let tries = 2; tries < 12; tries += 1) {
      waits.push(queue.clock.next);
      queue.clock.pass(queue.clock.next ?? 0);
      (await queue.core.next()).fail(stored);
      await reached(queue.resizes, id, 'Deferred');
    }
    expect(waits.slice(0, 5)).toEqual([750, 1500, 3000, 3750, 3750]);
    // Half of the delay is random, so the maximum is 5 s.
    expect([retryDelay(99, 1, Reason.VOLUME_IN_USE), retryDelay(99, 1)]).toEqual([5000, 60_000]);
    expect(waits.at(-1)).toBe(3750);
  });

  test('a deferred resize waits for the recovery of its pod, from the first try on', async () => {
    const answer = queue.resize('64Mi', { defer: true });
    (await queue.core.next()).fail(notRecovered);
    const { id, state, reason } = await answer;
    expect({ state, reason }).toEqual({ state: 'Deferred', reason: 'UNDO_FAILED' });
    queue.clock.pass(queue.clock.next ?? 0);
    (await queue.core.next()).fail(notRecovered);
    await reached(queue.resizes, id, 'Deferred');
    queue.clock.pass(queue.clock.next ?? 0);
    (await queue.core.next()).succeed();
    await reached(queue.resizes, id, 'Completed');
    expect(queue.unfinished).toBe(0);
  });

  test.each([
    ['containerd still starts', starting, 'BACKEND_UNAVAILABLE'],
    ['the journal accepts no record', diskFull, 'JOURNAL_UNAVAILABLE'],
  ] as const)('a deferred resize stays deferred and stored while %s', async (_, error, reason) => {
    const { id } = await queue.deferred();
    queue.clock.pass(queue.clock.next ?? 0);
    (await queue.core.next()).fail(error);
    await expect.poll(() => queue.resizes.get(id), LONG_WAIT).toMatchObject({ state: 'Deferred', reason });
    expect(queue.store.records.size).toBe(1);
    queue.clock.pass(queue.clock.next ?? 0);
    (await queue.core.next()).succeed();
    await reached(queue.resizes, id, 'Completed');
  });

  test('a resize of a pod that has ended is rejected instead of deferred', async () => {
    const answer = queue.resize('64Mi', { defer: true });
    (await queue.core.next()).fail(podEnded);
    await expect(answer).rejects.toMatchObject({ reason: 'POD_ENDED' });
    expect([queue.clock.next, queue.store.records.size, queue.unfinished]).toEqual([undefined, 0, 0]);
  });

  test('a resize that may not be deferred is rejected if its pod is not recovered', async () => {
    const answer = queue.resize('64Mi');
    (await queue.core.next()).fail(notRecovered);
    await expect(answer).rejects.toMatchObject({ reason: 'UNDO_FAILED' });
    expect(queue.unfinished).toBe(0);
  });

  test.each([
    ['can never fit', staysGuaranteed, 'Infeasible', 'QOS_CLASS_CHANGES'],
    ['has lost its pod', noPod, 'Canceled', 'POD_GONE'],
    ['is for a pod that has ended', podEnded, 'Canceled', 'POD_ENDED'],
    ['fails with an internal error', new TypeError('x'), 'Infeasible', 'INTERNAL'],
  ] as const)('a deferred resize that %s ends at its next try', async (_, error, state, reason) => {
    const { id } = await queue.deferred();
    queue.clock.pass(1000);
    (await queue.core.next()).fail(error);
    expect(await reached(queue.resizes, id, state)).toMatchObject({ reason });
    expect([queue.clock.next, queue.store.records.size, queue.unfinished]).toEqual([undefined, 0, 0]);
  });

  test('a resize is not deferred after an error that does not depend on its values', async () => {
    const answer = queue.resize('1Gi', { defer: true });
    (await queue.core.next()).fail(noBackend);
    await expect(answer).rejects.toMatchObject({ reason: 'BACKEND_UNAVAILABLE' });
    expect([queue.clock.next, queue.store.records.size]).toEqual([undefined, 0]);
  });

  test('KEP-1287: a deferred resize counts as canceled when a newer resize that completes supersedes it', async () => {
    const older = await queue.deferred();
    const newer = queue.resize('256Mi');
    (await queue.core.next()).succeed();
    const { id } = await newer;
    expect(queue.resizes.get(older.id)).toMatchObject({
      state: 'Canceled',
      reason: 'SUPERSEDED',
      message: `superseded by resize ${id}`,
    });
    expect([queue.clock.next, queue.store.records.size, queue.unfinished]).toEqual([undefined, 0, 0]);
  });

  test('a deferred resize is superseded by a newer deferred resize, but not by a resize of another pod', async () => {
    const other = await queue.deferred('1Gi', db);
    const older = await queue.deferred();
    const newer = await queue.deferred('64Mi');
    expect(queue.resizes.get(older.id).reason).toBe('SUPERSEDED');
    expect(queue.resizes.get(other.id).state).toBe('Deferred');
    const [record, ...more] = JSON.parse(queue.store.records.get(web.uid) ?? '') as { id: string }[];
    expect([record?.id, more]).toEqual([newer.id, []]);
  });

  test('a deferred resize stays deferred when a newer resize is rejected', async () => {
    const older = await queue.deferred();
    await expect(queue.resize('lots')).rejects.toThrow();
    const newer = queue.resize('1Gi');
    (await queue.core.next()).fail(noCgroup);
    await expect(newer).rejects.toThrow('no cgroup');
    queue.clock.pass(1000);
    (await queue.core.next()).succeed();
    expect((await reached(queue.resizes, older.id, 'Completed')).tries).toBe(2);
  });

  test('a deferred resize is not tried while a newer resize is in progress, so that its older values do not win', async () => {
    const older = await queue.deferred();
    const newer = queue.resize('256Mi');
    const call = await queue.core.next();
    queue.clock.pass(750);
    expect([queue.core.waiting, queue.resizes.get(older.id).state, queue.clock.next]).toEqual([0, 'Deferred', 750]);
    call.succeed();
    await newer;
    expect([queue.resizes.get(older.id).reason, queue.clock.next]).toEqual(['SUPERSEDED', undefined]);
  });

  test('a deferred resize is superseded when a newer resize completes during its first try', async () => {
    const older = queue.resize('128Mi', { defer: true });
    const first = await queue.core.next();
    const newer = queue.resize('256Mi');
    (await queue.core.next()).succeed();
    await newer;
    first.fail(memoryInUse);
    expect(await older).toMatchObject({ state: 'Canceled', reason: 'SUPERSEDED' });
  });

  test('KEP-1287: a deferred resize that is canceled twice counts as canceled once', async () => {
    const { id } = await queue.deferred();
    expect(await queue.resizes.cancel(id)).toMatchObject({ state: 'Canceled', reason: 'CANCELLED' });
    expect(await queue.resizes.cancel(id)).toMatchObject({ state: 'Canceled' });
    expect(queue.resizes.counts.canceled).toBe(1);
    expect([queue.clock.next, queue.store.records.size, queue.unfinished]).toEqual([undefined, 0, 0]);
  });

  test('a deferred resize that is canceled during a try ends after the try', async () => {
    const { id } = await queue.deferred();
    queue.clock.pass(1000);
    const call = await queue.core.next();
    const cancelling = queue.resizes.cancel(id);
    call.fail(memoryInUse);
    expect(await cancelling).toMatchObject({ state: 'Canceled', reason: 'CANCELLED' });
    expect(queue.clock.next).toBeUndefined();
  });

  test('a resize that is canceled too late ends as Completed', async () => {
    const answer = queue.resize('1Gi', { defer: true });
    const call = await queue.core.next();
    const cancelling = queue.resizes.cancel(queue.resizes.newestOf(web.sandboxId)?.id ?? '');
    call.succeed();
    expect(await cancelling).toMatchObject({ state: 'Completed' });
    expect(await answer).toMatchObject({ state: 'Completed' });
  });

  test('KEP-1287: a deferred resize is canceled when its pod is removed, and those of other pods stay deferred', async () => {
    const { id } = await queue.deferred();
    const other = await queue.deferred('1Gi', db);
    queue.resizes.podRemoved(web.sandboxId);
    expect(queue.resizes.get(id)).toMatchObject({ state: 'Canceled', reason: 'POD_GONE' });
    expect(queue.resizes.get(other.id).state).toBe('Deferred');
    await queue.resizes.close();
    expect([...queue.store.records.keys()]).toEqual([db.uid]);
  });

  test('KEP-1287: a resize whose pod is removed during a try is canceled after the try', async () => {
    const answer = queue.resize('1Gi', { defer: true });
    const call = await queue.core.next();
    queue.resizes.podRemoved(web.sandboxId);
    call.fail(memoryInUse);
    await expect(answer).rejects.toMatchObject({ reason: 'MEMORY_NOT_RECLAIMABLE' });
    expect(queue.resizes.newestOf(web.sandboxId)).toMatchObject({ state: 'Canceled', reason: 'POD_GONE' });
    expect(queue.unfinished).toBe(0);
  });

  test('a resize that may be deferred is rejected when it cannot be stored', async () => {
    queue.store.fault = new ShimError(Code.FAILED_PRECONDITION, Reason.CGROUP_UNAVAILABLE, 'disk full');
    await expect(queue.resize('1Gi', { defer: true })).rejects.toThrow('disk full');
    expect([queue.core.waiting, queue.unfinished]).toEqual([0, 0]);
  });

  test('the end of a deferred resize is stored later if it cannot be stored at once', async () => {
    const { id } = await queue.deferred();
    queue.store.fault = new Error('disk full');
    await queue.resizes.cancel(id);
    expect(queue.store.records.size).toBe(1);
    queue.store.fault = undefined;
    expect(queue.clock.pass(30_000)).toBe(1);
    await queue.resizes.close();
    expect(queue.store.records.size).toBe(0);
  });
});

describe('ids and history of resizes', () => {
  beforeEach(() => {
    queue = new ResizeQueue();
  });

  const completed = async (): Promise<string> => {
    const answer = queue.resize();
    (await queue.core.next()).succeed();
    return (await answer).id;
  };

  describe('resize id prefixes', () => {
    test('a resize can be read and cancelled by the first 8 characters of its id', async () => {
      const { id } = await queue.deferred();
      expect(queue.resizes.get(id.slice(0, 8)).id).toBe(id);
      expect(await queue.resizes.cancel(id.slice(0, 8))).toMatchObject({ id, state: 'Canceled', reason: 'CANCELLED' });
    });

    test('rejects a resize id prefix of fewer than 8 characters', async () => {
      const { id } = await queue.deferred();
      const unknown = {
        reason: 'UNKNOWN_RESIZE',
        message: expect.stringContaining('has at least 8 characters') as string,
      };
      for (const beginning of ['', id.slice(0, 1), id.slice(0, 7)])
        expect(() => queue.resizes.get(beginning)).toThrow(expect.objectContaining(unknown));
    });
  });

  describe('pod history', () => {
    test('the history of a pod lists its resizes with requester and state, including rejected ones', async () => {
      await completed();
      const rejected = queue.resize('64Mi');
      (await queue.core.next()).fail(memoryInUse);
      await expect(rejected).rejects.toMatchObject({ reason: 'MEMORY_NOT_RECLAIMABLE' });
      await expect(queue.resize('nonsense')).rejects.toMatchObject({ reason: 'INVALID_VALUE' });
      expect(queue.resizes.historyOf(web.sandboxId)).toMatchObject([
        { requester: { kind: 'api' }, state: 'Infeasible', reason: 'INVALID_VALUE' },
        {
          ...{ requester: { kind: 'api' }, state: 'Canceled', reason: 'MEMORY_NOT_RECLAIMABLE' },
          changes: [{ value: 'container app memory', from: '', to: '64Mi' }],
        },
        { requester: { kind: 'api' }, state: 'Completed', reason: undefined },
      ]);
    });

    test('a watch with history returns the ended resizes before later events', async () => {
      const first = await completed();
      const { id } = await queue.deferred();
      const events = async (withHistory: boolean): Promise<unknown[]> => {
        const watch = queue.resizes.watch(undefined, { withHistory });
        watch.push({ resize: 'end', pod: web, requester: { kind: 'api' }, at: 0, what: { kind: 'step' } as never });
        const seen: string[] = [];
        for await (const event of watch as AsyncIterable<ResizeEvent>) {
          if (event.resize === 'end') break;
          seen.push(event.resize);
        }
        return seen;
      };
      expect(await events(true)).toEqual([first, id]);
      expect(await events(false)).toEqual([id]);
    });

    test('the history of a pod contains CRI requests, which watches also receive and which cannot be cancelled', async () => {
      const history = new ResizeHistory();
      const parts = { core: new FakeCore(), clock: new FakeClock(), store: new FakeStore(), history };
      const resizes = createResizes(parts);
      const watch = resizes.watch();
      history.request(web, criRequester({ pid: 812, name: 'kubelet' })).failed(memoryInUse);
      expect((await watch.next()).value).toMatchObject({
        requester: { kind: 'kubelet' },
        what: { kind: 'state', state: 'Deferred', reason: 'MEMORY_NOT_RECLAIMABLE' },
      });
      const [entry] = resizes.historyOf(web.sandboxId);
      await expect(resizes.cancel(entry?.id ?? '')).rejects.toThrow(
        /was a request of kubelet \(812\), which has ended/,
      );
    });

    test('the history still reports after a restart that an annotation requested a deferred resize', async () => {
      const terms = { defer: true, timeoutMs: 30_000, deadline: queue.clock.now() + 5000 };
      const volumes = { cache: '1Gi' };
      const none = { ...asked(''), containers: {} };
      const answer = queue.resizes.resize(web, { ...none, volumes }, { ...terms, requester: { kind: 'annotation' } });
      (await queue.core.next()).fail(memoryInUse);
      await answer;
      await queue.resizes.storeAnnotations(web, volumes);
      const again = queue.restart();
      await again.restore(() => Promise.resolve(true));
      expect(again.historyOf(web.sandboxId)).toMatchObject([{ requester: { kind: 'annotation' }, state: 'Deferred' }]);
    });
  });

  describe('a resize whose second step fails', () => {
    const late = new ShimError(Code.DEADLINE_EXCEEDED, Reason.RECLAIM_TIMEOUT, 'the second container needs more time');
    const broken = new ShimError(Code.INTERNAL, Reason.CGROUP_WRITE_FAILED, 'not written');
    const fail = (call: CoreCall, error: unknown): void => {
      call.options.onStep?.(stepRecord);
      call.fail(error);
    };
    const latest = (): unknown => queue.resizes.historyOf(web.sandboxId)[0];

    test.each([
      ['Deferred, with defer', late, true, 'Deferred'],
      ['Canceled, without defer', late, false, 'Canceled'],
      ['Infeasible', broken, false, 'Infeasible'],
    ])(
      'a resize whose second step fails, and that is %s, reports that the first step was rolled back',
      async (_, error, defer, state) => {
        const watch = queue.resizes.watch(web);
        const answer = queue.resize('64Mi', { defer });
        fail(await queue.core.next(), error);
        await answer.catch(() => undefined);
        expect(latest()).toMatchObject({ state, reason: error.reason, isRolledBack: true });
        const ended = async (): Promise<unknown> => {
          for await (const { what } of watch as AsyncIterable<ResizeEvent>)
            if (what.kind === 'state' && what.state === state) return what;
          return undefined;
        };
        expect(await ended()).toMatchObject({ isRolledBack: true });
      },
    );

    test('a deferred resize that is cancelled reports that the steps of its last try were rolled back', async () => {
      const answer = queue.resize('64Mi', { defer: true });
      fail(await queue.core.next(), late);
      await queue.resizes.cancel((await answer).id);
      expect(latest()).toMatchObject({ state: 'Canceled', reason: 'CANCELLED', isRolledBack: true });
    });

    test('a deferred resize that does not fit at the next try no longer reports a rollback', async () => {
      const answer = queue.resize('64Mi', { defer: true });
      fail(await queue.core.next(), late);
      const { id } = await answer;
      queue.clock.pass(queue.clock.next ?? 0);
      const retry = await queue.core.next();
      expect(latest()).toMatchObject({ state: 'InProgress', isRolledBack: false });
      retry.fail(memoryInUse);
      await reached(queue.resizes, id, 'Deferred');
      expect(latest()).toMatchObject({ reason: 'MEMORY_NOT_RECLAIMABLE', isRolledBack: false });
    });

    test('a resize whose rollback fails does not report a rollback, even if it is cancelled later', async () => {
      const answer = queue.resize('64Mi', { defer: true });
      fail(await queue.core.next(), notRecovered);
      const { id } = await answer;
      expect(latest()).toMatchObject({ reason: 'UNDO_FAILED', isRolledBack: false });
      await queue.resizes.cancel(id);
      expect(latest()).toMatchObject({ reason: 'CANCELLED', isRolledBack: false });
    });

    test('a resize with an update that the runtime has not answered does not report a rollback', async () => {
      const answer = queue.resize();
      const call = await queue.core.next();
      call.options.onLeftUnfinished?.();
      fail(call, broken);
      await expect(answer).rejects.toMatchObject({ reason: 'CGROUP_WRITE_FAILED' });
      expect(latest()).toMatchObject({ state: 'Infeasible', isRolledBack: false });
    });
  });
});

describe('A6: the newest value of each field wins, for any caller', () => {
  const memory = (name: string): string => amountField(name, 'limits.memory');
  let newest: NewestValues;
  beforeEach(() => {
    newest = new NewestValues();
    queue = new ResizeQueue({}, newest);
  });
  const update = (...fields: string[]): Promise<void> =>
    newest.applied(web.sandboxId, { arrival: newest.arrival(), text: 'an update of container app' }, fields);

  test('a deferred resize is superseded by a later update of its field', async () => {
    const { id } = await queue.deferred();
    await update(memory('app'));
    expect(queue.resizes.get(id)).toMatchObject({
      state: 'Canceled',
      reason: 'SUPERSEDED',
      message: 'superseded by an update of container app',
    });
    expect([queue.clock.next, queue.store.records.size, queue.unfinished]).toEqual([undefined, 0, 0]);
  });

  test('a deferred resize stays when a later update sets other fields', async () => {
    const { id } = await queue.deferred();
    await update(amountField('app', 'limits.cpu'), memory('other'), amountField(undefined, 'limits.memory'));
    expect(queue.resizes.get(id).state).toBe('Deferred');
  });

  test('a deferred resize loses the fields that a later update sets, also in the journal', async () => {
    const both = { ...asked('128Mi'), volumes: { cache: '64Mi' } };
    const answer = queue.resizes.resize(web, both, {
      defer: true,
      timeoutMs: 30_000,
      deadline: queue.clock.now() + 5000,
    });
    (await queue.core.next()).fail(memoryInUse);
    const { id } = await answer;
    await update(memory('app'));
    expect(queue.store.records.get(web.uid)).not.toContain('128Mi');
    queue.clock.pass(1000);
    const call = await queue.core.next();
    const { containers, volumes } = call.desired;
    expect([containers.get('app'), [...volumes.keys()]]).toEqual([{}, ['cache']]);
    call.succeed();
    expect((await reached(queue.resizes, id, 'Completed')).tries).toBe(2);
  });

  test('a retry that waits for the lock does not replace the values of a later update', async () => {
    const { id } = await queue.deferred();
    queue.clock.pass(1000);
    const call = await queue.core.next();
    await update(memory('app'));
    expect(() => call.options.stillDesired?.()).toThrow(
      expect.objectContaining({ code: Code.ABORTED, reason: 'SUPERSEDED' }),
    );
    try {
      call.options.stillDesired?.();
    } catch (error) {
      call.fail(error);
    }
    expect(await reached(queue.resizes, id, 'Canceled')).toMatchObject({ reason: 'SUPERSEDED' });
  });

  test('an update that arrived before a deferred resize does not supersede it', async () => {
    const earlier = { arrival: newest.arrival(), text: 'an update of container app' };
    const { id } = await queue.deferred();
    await newest.applied(web.sandboxId, earlier, [memory('app')]);
    expect(queue.resizes.get(id).state).toBe('Deferred');
  });

  test('a resize of a previous process is superseded by any update of its field in this process', async () => {
    await queue.deferred();
    const later = new NewestValues();
    queue.clock = new FakeClock();
    const second = createResizes({ core: queue.core, clock: queue.clock, store: queue.store, newest: later });
    await later.applied(web.sandboxId, { arrival: later.arrival(), text: 'an update of container app' }, [
      memory('app'),
    ]);
    await second.restore(() => Promise.resolve(true));
    queue.clock.pass(1000);
    const { options } = await queue.core.next();
    expect(() => options.stillDesired?.()).toThrow('superseded by an update of container app');
  });

  test('a deferred resize stays when a newer resize sets other fields', async () => {
    const { id } = await queue.deferred();
    const other = { ...asked(''), volumes: { cache: '64Mi' } };
    const newer = queue.resizes.resize(web, other, {
      defer: false,
      timeoutMs: 1000,
      deadline: queue.clock.now() + 1000,
    });
    (await queue.core.next()).succeed();
    await newer;
    expect(queue.resizes.get(id).state).toBe('Deferred');
  });
});
