import { beforeEach, describe, expect, test } from 'vitest';
import { Code } from '../../../src/core/grpc.ts';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { bytes, cpuShares, cpuWeight } from '../../../src/core/quantities/numbers.ts';
import type { ResizeOutcome } from '../../../src/sandbox/plan/resize-request.ts';
import type { Resize, ActiveResize } from '../../../src/sandbox/queue/resize-table.ts';
import type { Resizes } from '../../../src/sandbox/queue/resizes.ts';
import { type PodRank, inRetryOrder } from '../../../src/sandbox/queue/retries.ts';
import type { PodIdentity } from '../../../src/sandbox/pods/pod-identity.ts';
import type { PodState } from '../../../src/sandbox/pods/pod-state.ts';
import {
  type CoreCall,
  FakeClock,
  FakeCore,
  FakeStore,
  asked,
  createResizes,
  outcome,
  reached,
} from '../../support/resize/fake-resizes.ts';
import { memoryInUse } from '../../support/resize/resize-queue.ts';

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

/** Fails the attempts of these pods, which have to come in this order and one at a time. */
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

/** Completes a resize of another pod, without an attempt of those that wait. */
async function completed(name: string, withOutcome: ResizeOutcome, request = ''): Promise<void> {
  const answer = resize(name, false, request);
  const call: CoreCall = await core.next();
  expect(call.sandboxId).toBe(name);
  call.succeed(withOutcome);
  await answer;
}

/** An outcome with other CPU requests of the container. */
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
    // The first retries: each by its own timer, 750 ms after its first try.
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
      // Not due for longer than resizes are tried early.
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
      const answer = before.resize(podOf(name), asked('128Mi', ''), { defer: true, timeoutMs: 30_000, deadline: 1e6 });
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
