import { beforeEach, describe, expect, test } from 'vitest';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { Code } from '../../../src/core/grpc.ts';
import { bytes, cpuShares, cpuWeight } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { ResizeOutcome } from '../../../src/sandbox/plan/resize-request.ts';
import type { PodIdentity } from '../../../src/sandbox/pods/pod-identity.ts';
import type { PodState } from '../../../src/sandbox/pods/pod-state.ts';
import type { ActiveResize, Resize, ResizeEvent } from '../../../src/sandbox/queue/resize-table.ts';
import type { Resizes } from '../../../src/sandbox/queue/resizes.ts';
import type { PodRank } from '../../../src/sandbox/queue/retries.ts';
import { inRetryOrder } from '../../../src/sandbox/queue/retries.ts';
import type { ResizeWatch } from '../../../src/sandbox/queue/watch.ts';
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
  web,
} from '../../support/resize/fake-resizes.ts';
import { memoryInUse, noBackend, ResizeQueue } from '../../support/resize/resize-queue.ts';

describe('order of retries', () => {
  const nodeFull = new ShimError(Code.FAILED_PRECONDITION, Reason.NODE_FULL, 'other pods have requested 900Mi of 1Gi');

  let core: FakeCore;
  let clock: FakeClock;
  let resizes: Resizes;
  const ranks = new Map<string, PodRank>();

  beforeEach(() => {
    core = new FakeCore();
    clock = new FakeClock();
    ranks.clear();
    const rankOf = ({ name }: PodIdentity): PodRank => ranks.get(name) ?? { priority: 0, isGuaranteed: false };
    resizes = createResizes({ core, clock, store: new FakeStore(), rankOf });
  });

  const podOf = (name: string): PodIdentity => ({ sandboxId: name, uid: `uid-${name}`, namespace: 'default', name });
  const resize = (name: string, defer: boolean, request = ''): Promise<Resize> =>
    resizes.resize(podOf(name), asked('128Mi', request), { defer, timeoutMs: 30_000, deadline: clock.now() + 5000 });

  /** A resize that is deferred after its first try. */
  async function deferred(name: string, rank?: PodRank, error = nodeFull): Promise<Resize> {
    if (rank !== undefined) ranks.set(name, rank);
    const answer = resize(name, true);
    (await core.next()).fail(error);
    return answer;
  }

  /** Makes the attempts of these pods fail. The attempts must be made in this order, one at a time. */
  async function triedInOrder(...names: readonly string[]): Promise<void> {
    for (const name of names) {
      const call = await core.next();
      expect(call.sandboxId).toBe(name);
      expect(core.waiting).toBe(0);
      const { id } = resizes.newestOf(name)!;
      const again = reached(resizes, id, 'Deferred');
      call.fail(nodeFull);
      await again;
    }
  }

  /** Completes a resize of another pod, without an attempt of the waiting resizes. */
  async function completed(name: string, withOutcome: ResizeOutcome, request = ''): Promise<void> {
    const answer = resize(name, false, request);
    const call: CoreCall = await core.next();
    expect(call.sandboxId).toBe(name);
    call.succeed(withOutcome);
    await answer;
  }

  /** An outcome that changes the CPU shares of the container. */
  function withShares(before: number, after: number): ResizeOutcome {
    const [container] = outcome.before.containers;
    const state = (shares: number): PodState => ({
      ...outcome.before,
      weight: cpuWeight(10),
      containers: [{ ...container!, shares: cpuShares(shares) }],
    });
    return { ...outcome, before: state(before), after: state(after) };
  }
  const [raised, lowered] = [withShares(102, 204), withShares(204, 102)];

  const high: PodRank = { priority: 1000, isGuaranteed: false };
  const guaranteed: PodRank = { priority: 0, isGuaranteed: true };

  describe('deferred resizes that wait for node capacity', () => {
    test('KEP-1287: deferred resizes are retried by priority, QoS class and age when a pod is removed', async () => {
      await deferred('old');
      clock.pass(1);
      await deferred('guaranteed', guaranteed);
      clock.pass(1);
      await deferred('young');
      clock.pass(1);
      await deferred('high', high);
      resizes.podRemoved('gone');
      await triedInOrder('high', 'guaranteed', 'old', 'young');
      expect(core.waiting).toBe(0);
    });

    test('deferred resizes are retried in order when another resize has lowered a request, but not when it has raised one', async () => {
      await deferred('low');
      await deferred('high', high);
      await completed('other', raised);
      await completed('other', lowered);
      await triedInOrder('high', 'low');
      expect(resizes.newestOf('high')?.tries).toBe(2);
    });

    test('deferred resizes are retried in order when an admitted resize fails and frees its capacity', async () => {
      await deferred('low');
      await deferred('high', high);
      const answer = resize('other', true);
      const call = await core.next();
      call.options.onRoomFreed?.();
      await triedInOrder('high', 'low');
      call.fail(memoryInUse);
      await answer;
      expect(core.waiting).toBe(0);
    });

    test('KEP-1287: the pod of highest priority gets freed capacity: its resize is applied while the next one is tried', async () => {
      const low = await deferred('low');
      const { id } = await deferred('high', high);
      resizes.roomFreed();
      const first = await core.next();
      expect([first.sandboxId, core.waiting]).toEqual(['high', 0]);
      first.options.onAdmitted?.();
      await triedInOrder('low');
      expect(resizes.get(id).state).toBe('InProgress');
      first.succeed(raised);
      await reached(resizes, id, 'Completed');
      expect(resizes.get(low.id)).toMatchObject({ state: 'Deferred', tries: 2 });
    });

    test('a retry first tries the deferred resizes that rank higher, and none that rank lower', async () => {
      await deferred('high', high);
      clock.pass(10);
      const middle = await deferred('middle', { priority: 500, isGuaranteed: false });
      clock.pass(10);
      await deferred('low');
      // The first retries: each has a separate timer, 750 ms after the first try.
      clock.pass(730);
      await triedInOrder('high');
      clock.pass(10);
      expect(clock.wallTime()).toBe(middle.nextTryAt);
      await triedInOrder('high', 'middle');
      expect(core.waiting).toBe(0);
      clock.pass(10);
      await triedInOrder('high', 'middle', 'low');
    });

    /** Retries a deferred resize until it is due much later than others: each failed retry doubles its pause. */
    async function dueLate(name: string, rank?: PodRank): Promise<void> {
      const { id } = await deferred(name, rank);
      while (resizes.get(id).nextTryAt! - clock.wallTime() < 45_000) {
        clock.pass(resizes.get(id).nextTryAt! - clock.wallTime());
        await triedInOrder(name);
      }
    }

    test('a retry does not try an older resize of equal rank that is not due soon', async () => {
      await dueLate('old');
      const young = await deferred('young');
      clock.pass(young.nextTryAt! - clock.wallTime());
      await triedInOrder('young');
      expect(core.waiting).toBe(0);
    });

    test.each([
      ['of a higher priority', high],
      ['of a Guaranteed pod', guaranteed],
    ])('a retry first tries a deferred resize %s, however late it is due', async (_, rank) => {
      await dueLate('first', rank);
      const low = await deferred('low');
      clock.pass(low.nextTryAt! - clock.wallTime());
      await triedInOrder('first', 'low');
      expect(core.waiting).toBe(0);
    });

    test.each([-3_600_000, 3_600_000])(
      'a change of the system time by %i ms changes neither order nor pauses',
      async (ms) => {
        await deferred('first');
        clock.setSystemTime(ms);
        await deferred('second');
        resizes.roomFreed();
        await triedInOrder('first', 'second');
        // Retries the first resize until its due time is beyond the limit for early tries.
        const { id } = resizes.newestOf('first')!;
        for (let tries = resizes.get(id).tries; tries < 8; tries += 1) {
          clock.setSystemTime(ms);
          clock.pass(60_000);
          await triedInOrder('first', 'second');
        }
        clock.setSystemTime(ms);
        await deferred('third');
        clock.pass(750);
        await triedInOrder('third');
        expect(core.waiting).toBe(0);
      },
    );

    test('deferred resizes are tried in the order of their requests after a restart', async () => {
      const store = new FakeStore();
      const before = createResizes({ core, clock, store, rankOf: () => ({ priority: 0, isGuaranteed: false }) });
      for (const name of ['b', 'a']) {
        clock.pass(1);
        const answer = before.resize(podOf(name), asked('128Mi', ''), {
          defer: true,
          timeoutMs: 30_000,
          deadline: 1e6,
        });
        (await core.next()).fail(nodeFull);
        await answer;
      }
      await before.close();
      const records = [...store.records].toSorted(([one], [other]) => one.localeCompare(other));
      const sorted = new FakeStore();
      for (const [uid, record] of records) sorted.records.set(uid, record);
      resizes = createResizes({ core, clock, store: sorted, rankOf: () => ({ priority: 0, isGuaranteed: false }) });
      await resizes.restore(() => Promise.resolve(true));
      clock.pass(1000);
      await triedInOrder('b', 'a');
    });

    test('a deferred resize whose admission takes too long does not delay the others', async () => {
      await deferred('high', high);
      await deferred('low');
      resizes.roomFreed();
      const first = await core.next();
      clock.pass(5000);
      await triedInOrder('low');
      first.fail(nodeFull);
    });

    test('deferred resizes that are due at once are tried by priority and QoS class', async () => {
      await deferred('low');
      await deferred('high', high);
      await deferred('guaranteed', guaranteed);
      clock.pass(60_000);
      await triedInOrder('high', 'guaranteed', 'low');
    });

    test('KEP-1287: a deferred resize that is being tried when capacity is freed is tried again', async () => {
      await deferred('high', high);
      await deferred('low');
      resizes.roomFreed();
      const first = await core.next();
      resizes.roomFreed();
      first.fail(nodeFull);
      await triedInOrder('high', 'low');
      expect(core.waiting).toBe(0);
    });

    test('a deferred resize that is cancelled while it waits for its turn is not tried', async () => {
      await deferred('high', high);
      const { id } = await deferred('middle', guaranteed);
      await deferred('low');
      resizes.roomFreed();
      const first = await core.next();
      await resizes.cancel(id);
      first.fail(nodeFull);
      await triedInOrder('low');
    });

    test('an attempt in progress ends when the shim stops, and no other starts', async () => {
      const low = await deferred('low');
      await deferred('high', high);
      resizes.roomFreed();
      const first = await core.next();
      const closed = resizes.close();
      first.fail(nodeFull);
      await closed;
      expect([core.waiting, resizes.get(low.id).state]).toEqual([0, 'Deferred']);
    });
  });

  describe('deferred resizes that wait for their own pod', () => {
    test('a deferred resize that waits for its own pod is not retried when other pods free capacity', async () => {
      await deferred('blocked', high, memoryInUse);
      await deferred('waiting');
      resizes.roomFreed();
      await triedInOrder('waiting');
      expect(core.waiting).toBe(0);
    });

    test('deferred resizes that wait for their own pods are retried concurrently and begin in order', async () => {
      await deferred('low', undefined, memoryInUse);
      await deferred('high', high, memoryInUse);
      clock.pass(60_000);
      const calls = [await core.next(), await core.next()];
      expect(calls.map(({ sandboxId }) => sandboxId)).toEqual(['high', 'low']);
    });
  });

  test('KEP-1287: deferred resizes are retried in the order of priority, then QoS class, then arrival', () => {
    const of = (name: string, order: number): ActiveResize => ({ resize: { pod: podOf(name) }, order }) as ActiveResize;
    const rank = (priority: number, isGuaranteed: boolean): PodRank => ({ priority, isGuaranteed });
    const all: readonly [string, PodRank, number][] = [
      ['a', rank(2, false), 9],
      ['b', rank(1, true), 8],
      ['c', rank(1, false), 3],
      ['d', rank(1, false), 4],
      ['e', rank(0, true), 0],
      ['f', rank(-1, true), 0],
    ];
    const rankOf = ({ name }: PodIdentity): PodRank => all.find(([other]) => other === name)![1];
    const resizesOf = all.map(([name, , order]) => of(name, order));
    const sorted = inRetryOrder(resizesOf.reverse(), rankOf);
    expect(sorted.map(({ resize: { pod } }) => pod.name)).toEqual(['a', 'b', 'c', 'd', 'e', 'f']);
  });

  test.each<[string, Partial<ResizeOutcome['after']>, boolean]>([
    ['nothing', {}, false],
    ['a higher CPU request of the pod', { weight: cpuWeight(11) }, false],
    ['a lower CPU request of the pod', { weight: cpuWeight(9) }, true],
    ['lower limits', { memory: bytes(MiB), containers: outcome.after.containers }, false],
    ['a lower CPU request of a container', { containers: lowered.after.containers }, true],
  ])('a resize that changes %s frees capacity only if it lowers a request', async (_, change, frees) => {
    await deferred('waiting');
    const { before } = lowered;
    await completed('other', { ...outcome, before, after: { ...before, ...change } });
    if (frees) await triedInOrder('waiting');
    expect(core.waiting).toBe(0);
  });

  test.each([
    ['lower than the one before', '64Mi', true],
    ['as high as before', '100Mi', false],
    ['higher than the one before', '128Mi', false],
  ])('a memory request that is %s frees capacity only if it is lower', async (_, request, frees) => {
    await completed('other', raised, '100Mi');
    await deferred('waiting');
    await completed('other', raised, request);
    if (frees) await triedInOrder('waiting');
    expect(core.waiting).toBe(0);
  });
});

describe('restored records', () => {
  let queue: ResizeQueue;

  beforeEach(() => {
    queue = new ResizeQueue();
  });

  const podExists = () => Promise.resolve(true);

  test('KEP-1287: a deferred resize is retried after a restart, with the same id and values, until it fits', async () => {
    const { id, createdAt } = await queue.deferred();
    await queue.resizes.close();
    await queue.restart().restore(podExists);
    expect(queue.resizes.get(id)).toMatchObject({
      state: 'Deferred',
      reason: 'RESTARTED',
      createdAt,
      asked: asked('128Mi'),
    });
    queue.clock.pass(1000);
    const call = await queue.core.next();
    expect([call.sandboxId, [...call.desired.containers]]).toEqual([web.sandboxId, [['app', { memory: 128 * MiB }]]]);
    call.succeed();
    await reached(queue.resizes, id, 'Completed');
    expect([queue.store.records.size, queue.unfinished]).toEqual([0, 0]);
  });

  test('an unavailable backend does not end a deferred resize after a restart', async () => {
    const { id } = await queue.deferred();
    await queue.resizes.close();
    await queue.restart().restore(podExists);
    queue.clock.pass(1000);
    (await queue.core.next()).fail(noBackend);
    expect(await reached(queue.resizes, id, 'Deferred')).toMatchObject({ reason: 'BACKEND_UNAVAILABLE', tries: 1 });
  });

  test('a resize whose first try was interrupted by a restart is retried', async () => {
    void queue.resize('1Gi', { defer: true });
    await queue.core.next();
    await queue.restart().restore(podExists);
    queue.clock.pass(1000);
    expect((await queue.core.next()).desired.containers.get('app')).toEqual({ memory: 1024 ** 3 });
  });

  test('KEP-1287: a pending resize ends after a restart if its pod is removed, and stays if the state of the pod is unknown', async () => {
    const gone = await queue.deferred();
    const unknown = await queue.deferred('1Gi', db);
    await queue.resizes.close();
    await queue
      .restart()
      .restore((sandboxId) =>
        sandboxId === web.sandboxId ? Promise.resolve(false) : Promise.reject(new Error('no backend')),
      );
    expect(queue.resizes.get(gone.id)).toMatchObject({ state: 'Canceled', reason: 'POD_GONE' });
    expect(queue.resizes.get(unknown.id).state).toBe('Deferred');
    await queue.resizes.close();
    expect([...queue.store.records.keys()]).toEqual([db.uid]);
  });

  test('stored annotations are known per pod and volume after a restart, until the pod is removed', async () => {
    await queue.resizes.storeAnnotations(web, { cache: '50%', logs: '8Mi' });
    await queue.resizes.storeAnnotations(web, { cache: '' });
    await queue.resizes.storeAnnotations(db, { data: 'follow' });
    await queue.resizes.close();
    await queue.restart().restore(podExists);
    expect(queue.resizes.annotationsOf(web.sandboxId)).toEqual({ cache: '', logs: '8Mi' });
    expect(queue.resizes.annotationsOf(db.sandboxId)).toEqual({ data: 'follow' });
    queue.resizes.podRemoved(web.sandboxId);
    await queue.resizes.close();
    expect(queue.resizes.annotationsOf(web.sandboxId)).toEqual({});
    expect([...queue.store.records.keys()]).toEqual([db.uid]);
  });

  test('stored memory requests are known after a restart, and a limit below them is rejected', async () => {
    const answer = queue.resize('1Gi', { request: '256Mi' });
    (await queue.core.next()).succeed();
    await answer;
    await queue.resizes.close();
    await queue.restart().restore(podExists);
    expect(queue.resizes.memoryRequestsOf(web.sandboxId)).toEqual({ containers: { app: 256 * MiB } });
    await expect(queue.resize('128Mi')).rejects.toMatchObject({
      reason: 'INVALID_VALUE',
      message: 'containers["app"].limits.memory: "128Mi": the limit is below the request, 256Mi',
    });
    queue.resizes.podRemoved(web.sandboxId);
    await queue.resizes.close();
    expect(queue.store.records.size).toBe(0);
  });

  const valid = { version: 1, kind: 'deferred', id: 'x', pod: web, asked: asked('1Gi'), timeoutMs: 1, createdAt: 1 };
  test.each([
    ['of a newer version', { ...valid, version: 2, more: true }],
    ['of another kind', { ...valid, kind: 'other' }],
    ['of another pod', { ...valid, pod: db }],
    ['without values', { ...valid, asked: {} }],
    ['that is not an object', 'text'],
    ['with an invalid size', { version: 1, kind: 'memory-requests', pod: web, memory: { containers: { a: -1 } } }],
  ])('a stored record %s is not changed by a restart', async (_, record) => {
    queue.store.records.set(web.uid, JSON.stringify([record]));
    await queue.resizes.restore(podExists);
    expect([queue.clock.next, queue.resizes.counts.proposed]).toEqual([undefined, 0]);
    const { id } = await queue.deferred();
    await queue.resizes.cancel(id);
    expect(JSON.parse(queue.store.records.get(web.uid) ?? '')).toEqual([record]);
  });
});

/** A pod whose sandbox has ended gets another one. */

const second: PodIdentity = { ...web, sandboxId: 'd'.repeat(64) };

/** A queue in which the newest sandbox of the pod web is `newest.web`. */
function queue(store = new FakeStore()) {
  const [core, clock] = [new FakeCore(), new FakeClock()];
  const newest = { web };
  const newestSandbox = (uid: string): PodIdentity | undefined =>
    [newest.web, db].find((pod) => pod.uid === uid && uid !== '');
  return { core, clock, store, newest, resizes: createResizes({ core, clock, store, newestSandbox }) };
}

async function deferred({ resizes, core, clock }: ReturnType<typeof queue>, pod = web): Promise<string> {
  const answer = resizes.resize(pod, asked('128Mi'), { defer: true, timeoutMs: 30_000, deadline: clock.now() + 5000 });
  (await core.next()).fail(memoryInUse);
  return (await answer).id;
}
const sandboxesIn = ({ store }: ReturnType<typeof queue>): unknown[] =>
  [...store.records.values()].flatMap((text) =>
    (JSON.parse(text) as { pod: PodIdentity }[]).map(({ pod }) => pod.sandboxId),
  );

describe('a deferred resize', () => {
  test.each([
    ['goes on, if no source says which containers the pod has', undefined, 'Deferred'],
    ['ends, if a source says that the pod has none of that name', 'spec', 'Infeasible'],
  ] as const)('a deferred resize whose container does not exist at a retry %s', async (_, source, state) => {
    const all = queue();
    const id = await deferred(all);
    all.clock.pass(60_000);
    const context = source === undefined ? {} : { source };
    (await all.core.next()).fail(
      new ShimError(Code.INVALID_ARGUMENT, Reason.UNKNOWN_CONTAINER, 'no such container', context),
    );
    await reached(all.resizes, id, state);
    expect(all.resizes.get(id)).toMatchObject({ state, reason: 'UNKNOWN_CONTAINER' });
  });

  test('a deferred resize continues in the newest sandbox of its pod when its own sandbox is removed', async () => {
    const all = queue();
    const id = await deferred(all);
    const other = await deferred(all, db);
    all.newest.web = second;
    all.resizes.sandboxAdded(web.uid);
    all.resizes.podRemoved(web.sandboxId);
    expect(all.resizes.get(id)).toMatchObject({ state: 'Deferred', pod: second });
    expect(all.resizes.newestOf(second.sandboxId)?.id).toBe(id);
    await expect.poll(() => sandboxesIn(all), LONG_WAIT).toEqual([second.sandboxId, db.sandboxId]);
    all.clock.pass(60_000);
    const calls = [await all.core.next(), await all.core.next()];
    expect(calls.map(({ sandboxId }) => sandboxId)).toEqual([second.sandboxId, db.sandboxId]);
    calls.forEach((call) => call.succeed());
    await reached(all.resizes, id, 'Completed');
    await reached(all.resizes, other, 'Completed');
    all.resizes.podRemoved(second.sandboxId);
  });

  test('a deferred resize of annotations keeps its requester in the newest sandbox of its pod, also after a restart', async () => {
    const before = queue();
    const volumes = { cache: '64Mi' };
    const terms = { defer: true, timeoutMs: 30_000, deadline: before.clock.now() + 5000 };
    const answer = before.resizes.resize(web, { ...asked(''), containers: {}, volumes }, terms);
    (await before.core.next()).fail(memoryInUse);
    const { id } = await answer;
    await before.resizes.storeAnnotations(web, volumes);
    await before.resizes.close();
    // The shim restarts, another sandbox replaces the first one, and the shim restarts again.
    for (const newest of [web, second, second]) {
      const after = queue(before.store);
      after.newest.web = newest;
      await after.resizes.restore((sandboxId) => Promise.resolve(sandboxId === newest.sandboxId));
      expect(after.resizes.get(id)).toMatchObject({ pod: newest, requester: { kind: 'annotation' } });
      expect(after.resizes.annotationsOf(newest.sandboxId)).toEqual(volumes);
      await after.resizes.close();
    }
  });

  test('a deferred resize ends when the newest sandbox of its pod is removed', async () => {
    const all = queue();
    const id = await deferred(all);
    all.newest.web = second;
    all.resizes.sandboxAdded(web.uid);
    all.resizes.podRemoved(second.sandboxId);
    expect(all.resizes.get(id)).toMatchObject({ state: 'Canceled', reason: 'POD_GONE' });
  });

  test('a deferred resize stays in its sandbox when an older sandbox, or one of another pod, becomes known', async () => {
    const all = queue();
    const id = await deferred(all);
    all.resizes.sandboxAdded(web.uid);
    all.resizes.sandboxAdded(db.uid);
    all.resizes.sandboxAdded('');
    expect(all.resizes.get(id).pod).toEqual(web);
  });

  test('a deferred resize continues in a sandbox that was created while the shim was away', async () => {
    const before = queue();
    const id = await deferred(before);
    await before.resizes.close();
    const after = queue(before.store);
    after.newest.web = second;
    await after.resizes.restore((sandboxId) => Promise.resolve(sandboxId !== web.sandboxId));
    expect(after.resizes.get(id)).toMatchObject({ state: 'Deferred', pod: second });
  });
});

/** Reads a watch up to the first event with this state. Returns the states, each with the sandbox of its event. */
async function statesUpTo(watch: ResizeWatch, last: string): Promise<[string, string][]> {
  const seen: [string, string][] = [];
  for await (const { pod, what } of watch as AsyncIterable<ResizeEvent>) {
    if (what.kind !== 'state') continue;
    seen.push([what.state, pod.sandboxId]);
    if (what.state === last) break;
  }
  return seen;
}

/** Replaces the sandbox of the pod web by the second one. */
function replaceSandbox({ newest, resizes }: ReturnType<typeof queue>): void {
  newest.web = second;
  resizes.sandboxAdded(web.uid);
}

describe('a resize whose sandbox is replaced', () => {
  test.each([true, false])(
    'a watch gets the end of a resize whose sandbox is replaced during the attempt (with defer: %s)',
    async (defer) => {
      const all = queue();
      const watch = all.resizes.watch(web);
      const terms = { defer, timeoutMs: 30_000, deadline: all.clock.now() + 5000 };
      const answer = all.resizes.resize(web, asked('128Mi'), terms);
      const call = await all.core.next();
      replaceSandbox(all);
      call.succeed();
      await answer;
      expect(await statesUpTo(watch, 'Completed')).toEqual([
        ['Proposed', web.sandboxId],
        ['InProgress', web.sandboxId],
        ['InProgress', second.sandboxId],
        ['Completed', second.sandboxId],
      ]);
    },
  );

  test.each([
    [true, 'Deferred'],
    [false, 'Canceled'],
  ] as const)(
    'an attempt in a sandbox that is replaced fails with SANDBOX_ENDED (with defer: %s)',
    async (defer, state) => {
      const all = queue();
      const terms = { defer, timeoutMs: 30_000, deadline: all.clock.now() + 5000 };
      const answer = all.resizes.resize(web, asked('128Mi'), terms);
      const call = await all.core.next();
      replaceSandbox(all);
      call.fail(new ShimError(Code.NOT_FOUND, Reason.UNKNOWN_POD, 'no pod with this sandbox id'));
      await answer.catch(() => undefined);
      expect(all.resizes.historyOf(second.sandboxId)).toMatchObject([{ state, reason: 'SANDBOX_ENDED' }]);
      if (!defer) return;
      all.clock.pass(60_000);
      const retry = await all.core.next();
      expect(retry.sandboxId).toBe(second.sandboxId);
      retry.succeed();
    },
  );

  test('a watch of a pod with its history gets the resizes of both sandboxes', async () => {
    const all = queue();
    const id = await deferred(all);
    await all.resizes.cancel(id);
    replaceSandbox(all);
    const watch = all.resizes.watch(second, { withHistory: true });
    await deferred(all, second);
    await deferred(all, db);
    expect(await statesUpTo(watch, 'Deferred')).toEqual([
      ['Canceled', web.sandboxId],
      ...['Proposed', 'InProgress', 'Deferred'].map((state) => [state, second.sandboxId]),
    ]);
  });

  test('a watch of a pod without a uid gets only the resizes of its sandbox', async () => {
    const all = queue();
    const [one, other] = [web, second].map((pod) => ({ ...pod, uid: '' })) as [PodIdentity, PodIdentity];
    const watch = all.resizes.watch(one);
    await deferred(all, other);
    await all.resizes.cancel(await deferred(all, one));
    expect(new Set((await statesUpTo(watch, 'Canceled')).map(([, sandboxId]) => sandboxId))).toEqual(
      new Set([one.sandboxId]),
    );
  });

  test('a deferred resize moves to the history of the new sandbox at once, and watches see it there', async () => {
    const all = queue();
    const id = await deferred(all);
    const watch = all.resizes.watch(web);
    replaceSandbox(all);
    expect(all.resizes.historyOf(second.sandboxId)).toMatchObject([{ id, state: 'Deferred', pod: second }]);
    expect(all.resizes.historyOf(web.sandboxId)).toEqual([]);
    await all.resizes.cancel(id);
    expect(await statesUpTo(watch, 'Canceled')).toEqual([
      ['Deferred', web.sandboxId],
      ['Deferred', second.sandboxId],
      ['Canceled', second.sandboxId],
    ]);
  });

  test('a deferred resize is in the history of a sandbox that was created while the shim was away', async () => {
    const before = queue();
    const id = await deferred(before);
    await before.resizes.close();
    const after = queue(before.store);
    after.newest.web = second;
    await after.resizes.restore(() => Promise.resolve(true));
    expect(after.resizes.historyOf(second.sandboxId)).toMatchObject([{ id, state: 'Deferred' }]);
  });
});

describe.each([
  ['sandbox has ended', Code.FAILED_PRECONDITION, Reason.SANDBOX_ENDED],
  ['containers have all ended', Code.FAILED_PRECONDITION, Reason.NO_RUNNING_CONTAINER],
  ['container ends during a retry', Code.FAILED_PRECONDITION, Reason.CGROUP_UNAVAILABLE],
  ['container does not exist yet in another sandbox', Code.INVALID_ARGUMENT, Reason.UNKNOWN_CONTAINER],
])('a deferred resize of a pod whose %s', (_, code, reason) => {
  const failure = new ShimError(code, reason, 'no container');

  test('a resize that waits for a container is retried only when kubelet starts a container of the pod', async () => {
    const all = queue();
    const id = await deferred(all);
    all.clock.pass(1000);
    (await all.core.next()).fail(failure);
    await reached(all.resizes, id, 'Deferred');
    expect(all.resizes.get(id)).toMatchObject({ reason, tries: 2 });
    all.resizes.containerStarted(db.sandboxId);
    expect(all.core.waiting).toBe(0);
    all.resizes.containerStarted(web.sandboxId);
    (await all.core.next()).succeed();
    await reached(all.resizes, id, 'Completed');
  });

  test('a resize that waits for a container is retried at once if a container started during the attempt', async () => {
    const all = queue();
    const id = await deferred(all);
    all.clock.pass(1000);
    const attempt = await all.core.next();
    all.resizes.containerStarted(web.sandboxId);
    attempt.fail(failure);
    await reached(all.resizes, id, 'Deferred');
    expect(all.clock.next).toBe(0);
    all.clock.pass(0);
    (await all.core.next()).fail(failure);
    await expect.poll(() => all.resizes.get(id), LONG_WAIT).toMatchObject({ state: 'Deferred', tries: 3 });
    expect(all.clock.next).toBeGreaterThan(1000);
  });

  test('a resize that waits for a container is not retried by a shim that stops', async () => {
    const all = queue();
    const id = await deferred(all);
    all.clock.pass(1000);
    (await all.core.next()).fail(failure);
    await reached(all.resizes, id, 'Deferred');
    await all.resizes.close();
    all.resizes.containerStarted(web.sandboxId);
    expect(all.core.waiting).toBe(0);
    expect(all.resizes.get(id).state).toBe('Deferred');
  });
});

test('a deferred resize that waits for memory is not retried when kubelet starts a container', async () => {
  const all = queue();
  const id = await deferred(all);
  all.resizes.containerStarted(web.sandboxId);
  expect(all.core.waiting).toBe(0);
  expect(all.resizes.get(id)).toMatchObject({ state: 'Deferred', tries: 1 });
});
