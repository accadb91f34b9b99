import { beforeEach, describe, expect, test } from 'vitest';
import { Code, Reason, ShimError } from '../../../src/core/errors/index.ts';
import { NewestValues, amountField } from '../../../src/resize/history/newest-values.ts';
import { retryDelay } from '../../../src/resize/queue/backoff.ts';
import {
  FakeClock,
  FakeCore,
  FakeStore,
  asked,
  createResizes,
  db,
  outcome,
  reached,
  stepRecord,
  web,
} from '../../support/resize/fake-resizes.ts';
import type { PodIdentity } from '../../../src/sandbox/pod-identity.ts';
import type { Resize, ResizeEvent } from '../../../src/resize/queue/resize.ts';
import type { Resizes } from '../../../src/resize/queue/resizes.ts';

let core: FakeCore;
let clock: FakeClock;
let store: FakeStore;
let resizes: Resizes;

beforeEach(() => {
  core = new FakeCore();
  clock = new FakeClock();
  store = new FakeStore();
  resizes = createResizes({ core, clock, store });
});

const inUse = new ShimError(Code.FAILED_PRECONDITION, Reason.MEMORY_NOT_RECLAIMABLE, 'app: 100 in use', {
  found: '100',
});
const tooMuch = new ShimError(Code.FAILED_PRECONDITION, Reason.CGROUP_UNAVAILABLE, 'no cgroup');
const noBackend = new ShimError(Code.UNAVAILABLE, Reason.BACKEND_UNAVAILABLE, 'no containerd');
const noPod = new ShimError(Code.NOT_FOUND, Reason.UNKNOWN_POD, 'no such pod');

function resize(memory = '128Mi', options: { defer?: boolean; pod?: PodIdentity; request?: string } = {}) {
  const { defer = false, pod = web, request = '' } = options;
  return resizes.resize(pod, asked(memory, request), { defer, timeoutMs: 30_000, deadline: clock.now() + 5000 });
}

/** A resize that has been deferred. */
async function deferred(memory = '128Mi', pod = web): Promise<Resize> {
  const answer = resize(memory, { defer: true, pod });
  (await core.next()).fail(inUse);
  return answer;
}

const balance = () => {
  const { proposed, infeasible, completed, canceled } = resizes.counts;
  return proposed - infeasible - completed - canceled;
};

describe('a resize', () => {
  test('is carried out: states and steps as they happen, the outcome in the end', async () => {
    const watch = resizes.watch();
    const answer = resize();
    const call = await core.next();
    expect(call.sandboxId).toBe(web.sandboxId);
    expect([...call.desired.containers]).toEqual([['app', { memory: 128 * 1024 ** 2 }]]);
    expect(call.options).toMatchObject({ dryRun: false, deadline: clock.now() + 5000 });
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
    expect(resizes.counts).toEqual({ proposed: 1, infeasible: 0, completed: 1, canceled: 0 });
    expect(resizes.newestOf(web.sandboxId)?.state).toBe('Completed');
    expect(store.records.size).toBe(0);
  });

  test('that does not fit yet is Deferred, and canceled where it is not to be tried again; its error has its id', async () => {
    const watch = resizes.watch();
    const answer = resize();
    (await core.next()).fail(inUse);
    const error = await answer.catch((reason: unknown) => reason);
    expect(error).toMatchObject({ reason: 'MEMORY_NOT_RECLAIMABLE', code: 9, message: 'app: 100 in use' });
    const id = (error as ShimError).context.resize ?? '';
    expect((error as ShimError).context).toEqual({ found: '100', resize: id });
    expect(resizes.get(id)).toMatchObject({
      state: 'Canceled',
      reason: 'MEMORY_NOT_RECLAIMABLE',
      message: 'app: 100 in use; the request does not allow a retry (defer)',
      nextTryAt: undefined,
    });
    const events: ResizeEvent['what'][] = [];
    for (let count = 0; count < 4; count += 1) events.push(((await watch.next()).value as ResizeEvent).what);
    const states = ['Proposed', 'InProgress', 'Deferred', 'Canceled'];
    expect(events).toMatchObject(states.map((state) => ({ kind: 'state', state })));
    expect(resizes.counts).toEqual({ proposed: 1, infeasible: 0, completed: 0, canceled: 1 });
    expect([clock.next, store.records.size, balance()]).toEqual([undefined, 0, 0]);
  });

  test('that is refused is Infeasible; its error has its id', async () => {
    const answer = resize();
    (await core.next()).fail(tooMuch);
    const error = await answer.catch((reason: unknown) => reason);
    const id = (error as ShimError).context.resize ?? '';
    expect(resizes.get(id)).toMatchObject({ state: 'Infeasible', reason: 'CGROUP_UNAVAILABLE' });
    expect(resizes.counts).toEqual({ proposed: 1, infeasible: 1, completed: 0, canceled: 0 });
  });

  test('that fails by a fault of ours keeps nothing of what is in it', async () => {
    const answer = resize();
    (await core.next()).fail(new TypeError('PASSWORD=hunter2'));
    await expect(answer).rejects.toThrow(TypeError);
    expect(JSON.stringify(resizes.newestOf(web.sandboxId))).not.toContain('hunter2');
    expect(resizes.newestOf(web.sandboxId)).toMatchObject({ state: 'Infeasible', reason: 'INTERNAL' });
  });

  test.each([
    [14, 'UNAVAILABLE', Reason.BACKEND_UNAVAILABLE, Code.UNAVAILABLE],
    [4, 'DEADLINE_EXCEEDED', Reason.BACKEND_UNAVAILABLE, Code.UNAVAILABLE],
    [2, 'UNKNOWN', Reason.BACKEND_FAILED, Code.INTERNAL],
  ])('that the backend ends with code %i says so', async (code, name, reason, own) => {
    const answer = resize();
    (await core.next()).fail(Object.assign(new Error('x'), { code, details: 'runc says no', metadata: {} }));
    await expect(answer).rejects.toMatchObject({ reason, code: own, message: `the backend: ${name}: runc says no` });
  });

  test('that asks badly is counted, and nothing else happens', async () => {
    await expect(resize('lots')).rejects.toMatchObject({ reason: 'INVALID_VALUE' });
    expect(core.waiting).toBe(0);
    expect(resizes.counts).toEqual({ proposed: 1, infeasible: 1, completed: 0, canceled: 0 });
  });

  test('for trial is neither kept nor counted', async () => {
    const trial = resizes.dryRun(web, asked('1Gi'), 7);
    const call = await core.next();
    expect(call.options).toEqual({ dryRun: true, deadline: 7 });
    call.succeed();
    const none = { containers: {} };
    expect(await trial).toEqual({ ...outcome, memoryRequests: { before: none, after: none } });
    expect(resizes.newestOf(web.sandboxId)).toBeUndefined();
    expect(resizes.counts.proposed).toBe(0);
  });
});

describe('a deferred resize', () => {
  test('is tried again, later and later, until it fits', async () => {
    const { id, state, reason, nextTryAt } = await deferred();
    expect({ state, reason, wait: (nextTryAt ?? 0) - clock.now() }).toEqual({
      state: 'Deferred',
      reason: 'MEMORY_NOT_RECLAIMABLE',
      wait: 750,
    });
    const waits: (number | undefined)[] = [];
    for (const error of [inUse, noBackend, inUse, inUse, inUse, inUse, inUse]) {
      waits.push(clock.next);
      expect(clock.pass(clock.next ?? 0)).toBe(1);
      const call = await core.next();
      expect(call.options.deadline).toBe(clock.now() + 30_000);
      call.fail(error);
      await reached(resizes, id, 'Deferred');
    }
    expect(waits).toEqual([750, 1500, 3000, 6000, 12_000, 24_000, 45_000]);
    clock.pass(45_000);
    (await core.next()).succeed();
    expect(await reached(resizes, id, 'Completed')).toMatchObject({
      tries: 9,
      after: outcome.after,
      reason: undefined,
    });
    expect(clock.next).toBeUndefined();
    expect([store.records.size, balance()]).toEqual([0, 0]);
  });

  test('for files that are in the way is tried again every five seconds at the longest, from the first try to the last', async () => {
    const answer = resize('64Mi', { defer: true });
    const stored = new ShimError(Code.FAILED_PRECONDITION, Reason.VOLUME_IN_USE, 'volume cache stores 200');
    (await core.next()).fail(stored);
    const { id } = await answer;
    const waits: (number | undefined)[] = [];
    for (let tries = 2; tries < 12; tries += 1) {
      waits.push(clock.next);
      clock.pass(clock.next ?? 0);
      (await core.next()).fail(stored);
      await reached(resizes, id, 'Deferred');
    }
    expect(waits.slice(0, 5)).toEqual([750, 1500, 3000, 3750, 3750]);
    // Half of it is left to chance: at the most it is 5 s.
    expect([retryDelay(99, 1, Reason.VOLUME_IN_USE), retryDelay(99, 1)]).toEqual([5000, 60_000]);
    expect(waits.at(-1)).toBe(3750);
  });

  test.each([
    ['cannot fit', tooMuch, 'Infeasible', 'CGROUP_UNAVAILABLE'],
    ['has no pod any more', noPod, 'Canceled', 'POD_GONE'],
    ['fails by a fault of ours', new TypeError('x'), 'Infeasible', 'INTERNAL'],
  ] as const)('that %s ends', async (_, error, state, reason) => {
    const { id } = await deferred();
    clock.pass(1000);
    (await core.next()).fail(error);
    expect(await reached(resizes, id, state)).toMatchObject({ reason });
    expect([clock.next, store.records.size, balance()]).toEqual([undefined, 0, 0]);
  });

  test('is not begun by what says nothing of whether it fits', async () => {
    const answer = resize('1Gi', { defer: true });
    (await core.next()).fail(noBackend);
    await expect(answer).rejects.toMatchObject({ reason: 'BACKEND_UNAVAILABLE' });
    expect([clock.next, store.records.size]).toEqual([undefined, 0]);
  });

  test('is superseded by a newer one that is carried out', async () => {
    const older = await deferred();
    const newer = resize('256Mi');
    (await core.next()).succeed();
    const { id } = await newer;
    expect(resizes.get(older.id)).toMatchObject({
      state: 'Canceled',
      reason: 'SUPERSEDED',
      message: `superseded by resize ${id}`,
    });
    expect([clock.next, store.records.size, balance()]).toEqual([undefined, 0, 0]);
  });

  test('is superseded by a newer one that is deferred, and by no one of another pod', async () => {
    const other = await deferred('1Gi', db);
    const older = await deferred();
    const newer = await deferred('64Mi');
    expect(resizes.get(older.id).reason).toBe('SUPERSEDED');
    expect(resizes.get(other.id).state).toBe('Deferred');
    const [record, ...more] = JSON.parse(store.records.get(web.uid) ?? '') as { id: string }[];
    expect([record?.id, more]).toEqual([newer.id, []]);
  });

  describe('A6: the newest value of each field wins, whoever asked', () => {
    const memory = (name: string): string => amountField(name, 'limits.memory');
    let newest: NewestValues;
    beforeEach(() => {
      newest = new NewestValues();
      resizes = createResizes({ core, clock, store, newest });
    });
    const update = (...fields: string[]): Promise<void> =>
      newest.applied(web.sandboxId, { arrival: newest.arrival(), text: 'an update of container app' }, fields);

    test('a deferred resize is superseded by a later update of its field', async () => {
      const { id } = await deferred();
      await update(memory('app'));
      expect(resizes.get(id)).toMatchObject({
        state: 'Canceled',
        reason: 'SUPERSEDED',
        message: 'superseded by an update of container app',
      });
      expect([clock.next, store.records.size, balance()]).toEqual([undefined, 0, 0]);
    });

    test('a deferred resize stays when a later update sets other fields', async () => {
      const { id } = await deferred();
      await update(amountField('app', 'limits.cpu'), memory('other'), amountField(undefined, 'limits.memory'));
      expect(resizes.get(id).state).toBe('Deferred');
    });

    test('a deferred resize loses the fields that a later update sets, also in the journal', async () => {
      const both = { ...asked('128Mi'), volumes: { cache: '64Mi' } };
      const answer = resizes.resize(web, both, { defer: true, timeoutMs: 30_000, deadline: clock.now() + 5000 });
      (await core.next()).fail(inUse);
      const { id } = await answer;
      await update(memory('app'));
      expect(store.records.get(web.uid)).not.toContain('128Mi');
      clock.pass(1000);
      const call = await core.next();
      const { containers, volumes } = call.desired;
      expect([containers.get('app'), [...volumes.keys()]]).toEqual([{}, ['cache']]);
      call.succeed();
      expect((await reached(resizes, id, 'Completed')).tries).toBe(2);
    });

    test('a retry that waits for the lock does not set what an update has set meanwhile', async () => {
      const { id } = await deferred();
      clock.pass(1000);
      const call = await core.next();
      await update(memory('app'));
      expect(() => call.options.stillDesired?.()).toThrow(
        expect.objectContaining({ code: Code.ABORTED, reason: 'SUPERSEDED' }),
      );
      try {
        call.options.stillDesired?.();
      } catch (error) {
        call.fail(error);
      }
      expect(await reached(resizes, id, 'Canceled')).toMatchObject({ reason: 'SUPERSEDED' });
    });

    test('an update that arrived earlier supersedes nothing', async () => {
      const earlier = { arrival: newest.arrival(), text: 'an update of container app' };
      const { id } = await deferred();
      await newest.applied(web.sandboxId, earlier, [memory('app')]);
      expect(resizes.get(id).state).toBe('Deferred');
    });

    test('a resize of a previous process is older than every update of this one', async () => {
      await deferred();
      const later = new NewestValues();
      clock = new FakeClock();
      const second = createResizes({ core, clock, store, newest: later });
      await later.applied(web.sandboxId, { arrival: later.arrival(), text: 'an update of container app' }, [
        memory('app'),
      ]);
      await second.restore(() => Promise.resolve(true));
      clock.pass(1000);
      const { options } = await core.next();
      expect(() => options.stillDesired?.()).toThrow('superseded by an update of container app');
    });

    test('a deferred resize stays when a newer resize sets other fields', async () => {
      const { id } = await deferred();
      const other = { ...asked(''), volumes: { cache: '64Mi' } };
      const newer = resizes.resize(web, other, { defer: false, timeoutMs: 1000, deadline: clock.now() + 1000 });
      (await core.next()).succeed();
      await newer;
      expect(resizes.get(id).state).toBe('Deferred');
    });
  });

  test('stays when a newer one is refused: that has changed nothing', async () => {
    const older = await deferred();
    await expect(resize('lots')).rejects.toThrow();
    const newer = resize('1Gi');
    (await core.next()).fail(tooMuch);
    await expect(newer).rejects.toThrow('no cgroup');
    clock.pass(1000);
    (await core.next()).succeed();
    expect((await reached(resizes, older.id, 'Completed')).tries).toBe(2);
  });

  test('is not tried while a newer one is under way: its older values would be the last', async () => {
    const older = await deferred();
    const newer = resize('256Mi');
    const call = await core.next();
    clock.pass(750);
    expect([core.waiting, resizes.get(older.id).state, clock.next]).toEqual([0, 'Deferred', 750]);
    call.succeed();
    await newer;
    expect([resizes.get(older.id).reason, clock.next]).toEqual(['SUPERSEDED', undefined]);
  });

  test('is not begun when a newer one has been carried out meanwhile', async () => {
    const older = resize('128Mi', { defer: true });
    const first = await core.next();
    const newer = resize('256Mi');
    (await core.next()).succeed();
    await newer;
    first.fail(inUse);
    expect(await older).toMatchObject({ state: 'Canceled', reason: 'SUPERSEDED' });
  });

  test('ends when it is cancelled, once', async () => {
    const { id } = await deferred();
    expect(await resizes.cancel(id)).toMatchObject({ state: 'Canceled', reason: 'CANCELLED' });
    expect(await resizes.cancel(id)).toMatchObject({ state: 'Canceled' });
    expect(resizes.counts.canceled).toBe(1);
    expect([clock.next, store.records.size, balance()]).toEqual([undefined, 0, 0]);
  });

  test('that is cancelled during a try ends with it', async () => {
    const { id } = await deferred();
    clock.pass(1000);
    const call = await core.next();
    const cancelling = resizes.cancel(id);
    call.fail(inUse);
    expect(await cancelling).toMatchObject({ state: 'Canceled', reason: 'CANCELLED' });
    expect(clock.next).toBeUndefined();
  });

  test('that is cancelled too late is Completed', async () => {
    const answer = resize('1Gi', { defer: true });
    const call = await core.next();
    const cancelling = resizes.cancel(resizes.newestOf(web.sandboxId)?.id ?? '');
    call.succeed();
    expect(await cancelling).toMatchObject({ state: 'Completed' });
    expect(await answer).toMatchObject({ state: 'Completed' });
  });

  test('ends when its pod goes, and no other does', async () => {
    const { id } = await deferred();
    const other = await deferred('1Gi', db);
    resizes.podRemoved(web.sandboxId);
    expect(resizes.get(id)).toMatchObject({ state: 'Canceled', reason: 'POD_GONE' });
    expect(resizes.get(other.id).state).toBe('Deferred');
    await resizes.close();
    expect([...store.records.keys()]).toEqual([db.uid]);
  });

  test('whose pod goes during a try ends with it', async () => {
    const answer = resize('1Gi', { defer: true });
    const call = await core.next();
    resizes.podRemoved(web.sandboxId);
    call.fail(inUse);
    await expect(answer).rejects.toMatchObject({ reason: 'MEMORY_NOT_RECLAIMABLE' });
    expect(resizes.newestOf(web.sandboxId)).toMatchObject({ state: 'Canceled', reason: 'POD_GONE' });
    expect(balance()).toBe(0);
  });

  test('is refused when it cannot be kept', async () => {
    store.fault = new ShimError(Code.FAILED_PRECONDITION, Reason.CGROUP_UNAVAILABLE, 'disk full');
    await expect(resize('1Gi', { defer: true })).rejects.toThrow('disk full');
    expect([core.waiting, balance()]).toEqual([0, 0]);
  });

  test('whose end cannot be kept is written later', async () => {
    const { id } = await deferred();
    store.fault = new Error('disk full');
    await resizes.cancel(id);
    expect(store.records.size).toBe(1);
    store.fault = undefined;
    expect(clock.pass(30_000)).toBe(1);
    await resizes.close();
    expect(store.records.size).toBe(0);
  });
});

describe('after a restart', () => {
  const there = () => Promise.resolve(true);
  const restart = (): Resizes => {
    clock = new FakeClock();
    core = new FakeCore();
    resizes = createResizes({ core, clock, store });
    return resizes;
  };

  test('a deferred resize is tried again, with the same id and values', async () => {
    const { id, createdAt } = await deferred();
    await resizes.close();
    await restart().restore(there);
    expect(resizes.get(id)).toMatchObject({ state: 'Deferred', reason: 'RESTARTED', createdAt, asked: asked('128Mi') });
    clock.pass(1000);
    const call = await core.next();
    expect([call.sandboxId, [...call.desired.containers]]).toEqual([
      web.sandboxId,
      [['app', { memory: 128 * 1024 ** 2 }]],
    ]);
    call.succeed();
    await reached(resizes, id, 'Completed');
    expect([store.records.size, balance()]).toEqual([0, 0]);
  });

  test('a backend that is not there yet does not end a deferred resize', async () => {
    const { id } = await deferred();
    await resizes.close();
    await restart().restore(there);
    clock.pass(1000);
    (await core.next()).fail(noBackend);
    expect(await reached(resizes, id, 'Deferred')).toMatchObject({ reason: 'BACKEND_UNAVAILABLE', tries: 1 });
  });

  test('in the middle of a try it is tried again', async () => {
    void resize('1Gi', { defer: true });
    await core.next();
    await restart().restore(there);
    clock.pass(1000);
    expect((await core.next()).desired.containers.get('app')).toEqual({ memory: 1024 ** 3 });
  });

  test('one of a pod that is gone ends; one whose pod cannot be asked about stays', async () => {
    const gone = await deferred();
    const kept = await deferred('1Gi', db);
    await resizes.close();
    await restart().restore((sandboxId) =>
      sandboxId === web.sandboxId ? Promise.resolve(false) : Promise.reject(new Error('no backend')),
    );
    expect(resizes.get(gone.id)).toMatchObject({ state: 'Canceled', reason: 'POD_GONE' });
    expect(resizes.get(kept.id).state).toBe('Deferred');
    await resizes.close();
    expect([...store.records.keys()]).toEqual([db.uid]);
  });

  test('what annotations have asked for is known, by volume and by pod, until the pod goes', async () => {
    await resizes.storeAnnotations(web, { cache: '50%', logs: '8Mi' });
    await resizes.storeAnnotations(web, { cache: '' });
    await resizes.storeAnnotations(db, { data: 'follow' });
    await resizes.close();
    await restart().restore(there);
    expect(resizes.annotationsOf(web.sandboxId)).toEqual({ cache: '', logs: '8Mi' });
    expect(resizes.annotationsOf(db.sandboxId)).toEqual({ data: 'follow' });
    resizes.podRemoved(web.sandboxId);
    await resizes.close();
    expect(resizes.annotationsOf(web.sandboxId)).toEqual({});
    expect([...store.records.keys()]).toEqual([db.uid]);
  });

  test('requests of memory are known, and no limit goes below them', async () => {
    const answer = resize('1Gi', { request: '256Mi' });
    (await core.next()).succeed();
    await answer;
    await resizes.close();
    await restart().restore(there);
    expect(resizes.memoryRequestsOf(web.sandboxId)).toEqual({ containers: { app: 256 * 1024 ** 2 } });
    await expect(resize('128Mi')).rejects.toMatchObject({
      reason: 'INVALID_VALUE',
      message: 'containers["app"].limits.memory: "128Mi": the limit is below the request, 256Mi',
    });
    resizes.podRemoved(web.sandboxId);
    await resizes.close();
    expect(store.records.size).toBe(0);
  });

  const sound = { version: 1, kind: 'deferred', id: 'x', pod: web, asked: asked('1Gi'), timeoutMs: 1, createdAt: 1 };
  test.each([
    ['of a newer version', { ...sound, version: 2, more: true }],
    ['of another kind', { ...sound, kind: 'other' }],
    ['of another pod', { ...sound, pod: db }],
    ['without values', { ...sound, asked: {} }],
    ['that is no object', 'text'],
    ['with a size that is none', { version: 1, kind: 'memory-requests', pod: web, memory: { containers: { a: -1 } } }],
  ])('a record %s is left as it is', async (_, record) => {
    store.records.set(web.uid, JSON.stringify([record]));
    await resizes.restore(there);
    expect([clock.next, resizes.counts.proposed]).toEqual([undefined, 0]);
    const { id } = await deferred();
    await resizes.cancel(id);
    expect(JSON.parse(store.records.get(web.uid) ?? '')).toEqual([record]);
  });
});

describe('bounds', () => {
  test('hold for resizes under way or deferred', async () => {
    resizes = createResizes({ core, clock, store, bounds: { active: 1 } });
    const { id } = await deferred();
    await expect(resize('1Gi', { pod: db })).rejects.toMatchObject({ code: 8, reason: 'TOO_MANY_RESIZES' });
    await resizes.cancel(id);
    const answer = resize('1Gi', { pod: db });
    (await core.next()).succeed();
    await answer;
  });

  test('hold for those that have ended: the oldest are forgotten', async () => {
    resizes = createResizes({ core, clock, store, bounds: { ended: 2 } });
    const ids: string[] = [];
    for (const pod of [web, db, db]) {
      const answer = resize('1Gi', { pod });
      (await core.next()).succeed();
      ids.push((await answer).id);
    }
    expect(() => resizes.get(ids[0] ?? '')).toThrow(expect.objectContaining({ code: 5, reason: 'UNKNOWN_RESIZE' }));
    expect(resizes.newestOf(web.sandboxId)).toBeUndefined();
    expect([resizes.get(ids[1] ?? '').state, resizes.newestOf(db.sandboxId)?.id]).toEqual(['Completed', ids[2]]);
  });

  test('hold for watchers, and for what each leaves unread', async () => {
    resizes = createResizes({ core, clock, store, bounds: { watchers: 1, unreadEvents: 3 } });
    const slow = resizes.watch();
    expect(() => resizes.watch()).toThrow(expect.objectContaining({ code: 8, reason: 'TOO_MANY_WATCHERS' }));
    const answer = resize();
    (await core.next()).succeed();
    await answer;
    await expect(slow.next()).rejects.toMatchObject({ code: 8, reason: 'WATCHER_TOO_SLOW' });
    resizes.watch().end();
    resizes.watch();
  });
});

describe('a watch', () => {
  test('begins with what has not ended, and is of one pod if asked so', async () => {
    const { id } = await deferred();
    await deferred('1Gi', db);
    const watch = resizes.watch(web.sandboxId);
    const other = await resizes.cancel(resizes.newestOf(db.sandboxId)?.id ?? '');
    await resizes.cancel(id);
    watch.push({ resize: other.id, pod: db, at: 0, what: { kind: 'step', record: stepRecord } });
    const events = [(await watch.next()).value, (await watch.next()).value] as ResizeEvent[];
    expect(events).toMatchObject([
      { resize: id, what: { state: 'Deferred', reason: 'MEMORY_NOT_RECLAIMABLE' } },
      { resize: id, what: { state: 'Canceled', reason: 'CANCELLED' } },
    ]);
  });

  test('ends with the shim, as new resizes do; those under way are finished first', async () => {
    const watch = resizes.watch();
    const reading = (async () => {
      const states: string[] = [];
      try {
        for await (const { what } of watch) if (what.kind === 'state') states.push(what.state);
      } catch (error) {
        states.push((error as ShimError).reason);
      }
      return states;
    })();
    const answer = resize();
    const call = await core.next();
    const closing = resizes.close();
    await expect(resize()).rejects.toMatchObject({ code: 14, reason: 'STOPPING' });
    expect(() => resizes.watch()).toThrow(expect.objectContaining({ reason: 'STOPPING' }));
    call.succeed();
    await closing;
    expect((await answer).state).toBe('Completed');
    expect(await reading).toEqual(['Proposed', 'InProgress', 'Completed', 'STOPPING']);
  });
});
