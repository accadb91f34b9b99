import { describe, expect, test } from 'vitest';
import type { PodIdentity } from '../../../src/sandbox/pods/pod-identity.ts';
import type { ResizeEvent } from '../../../src/sandbox/queue/resize-table.ts';
import type { ResizeWatch } from '../../../src/sandbox/queue/watch.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';
import {
  FakeClock,
  FakeCore,
  FakeStore,
  asked,
  createResizes,
  db,
  reached,
  web,
} from '../../support/resize/fake-resizes.ts';
import { memoryInUse } from '../../support/resize/resize-queue.ts';
import { Code } from '../../../src/core/grpc.ts';
import { Reason, ShimError } from '../../../src/core/errors.ts';

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
    // The shim restarts, a sandbox replaces the other one, and the shim restarts again.
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
