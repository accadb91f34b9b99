import { beforeEach, describe, expect, test } from 'vitest';
import { criRequester } from '../../../src/resize/history/index.ts';
import { ResizeHistory } from '../../../src/resize/history/history.ts';
import type { ResizeEvent } from '../../../src/resize/queue/requests/resize.ts';
import { FakeClock, FakeCore, FakeStore, asked, createResizes, web } from '../../support/resize/fake-resizes.ts';
import { ResizeQueue, memoryInUse } from '../../support/resize/resize-queue.ts';

let queue: ResizeQueue;
beforeEach(() => {
  queue = new ResizeQueue();
});

const completed = async (): Promise<string> => {
  const answer = queue.resize();
  (await queue.core.next()).succeed();
  return (await answer).id;
};

describe('a resize is found by the beginning of its id', () => {
  test('for its state, and to cancel it', async () => {
    const { id } = await queue.deferred();
    expect(queue.resizes.get(id.slice(0, 8)).id).toBe(id);
    expect(await queue.resizes.cancel(id.slice(0, 8))).toMatchObject({ id, state: 'Canceled', reason: 'CANCELLED' });
  });

  test('but not if it is empty, or several begin so', async () => {
    // 17 ids begin with 16 hexadecimal digits.
    const ids: string[] = [];
    for (let count = 0; count < 17; count += 1) ids.push(await completed());
    const digit = ids.map((id) => id.charAt(0)).find((one, index, all) => all.indexOf(one) !== index) ?? '';
    expect(() => queue.resizes.get(digit)).toThrow(/^\d+ resizes have an id that begins with "[0-9a-f]": use more of/);
    expect(() => queue.resizes.get('')).toThrow(expect.objectContaining({ reason: 'UNKNOWN_RESIZE' }));
  });
});

describe('the history of a pod', () => {
  test('has its resizes with their requester and states, also one that was rejected', async () => {
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

  test('comes before the events of a watch that asks for it', async () => {
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

  test('has requests of the CRI, which watches see as well, and which are no resizes to cancel', async () => {
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

  test('says after a restart whether an annotation asked for a deferred resize', async () => {
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
