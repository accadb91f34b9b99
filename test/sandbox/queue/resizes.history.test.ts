import { beforeEach, describe, expect, test } from 'vitest';
import { criRequester } from '../../../src/sandbox/history/history-entry.ts';
import { ResizeHistory } from '../../../src/sandbox/history/history.ts';
import type { ResizeEvent } from '../../../src/sandbox/queue/resize-table.ts';
import {
  type CoreCall,
  FakeClock,
  FakeCore,
  FakeStore,
  asked,
  createResizes,
  reached,
  stepRecord,
  web,
} from '../../support/resize/fake-resizes.ts';
import { ResizeQueue, memoryInUse, notRecovered } from '../../support/resize/resize-queue.ts';
import { Code } from '../../../src/core/grpc.ts';
import { Reason, ShimError } from '../../../src/core/errors.ts';

let queue: ResizeQueue;
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
    await expect(resizes.cancel(entry?.id ?? '')).rejects.toThrow(/was a request of kubelet \(812\), which has ended/);
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
