import { beforeEach, describe, expect, test } from 'vitest';
import { asked, db, reached, web } from '../../support/resize/fake-resizes.ts';
import { ResizeQueue, noBackend } from '../../support/resize/resize-queue.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';

let queue: ResizeQueue;
beforeEach(() => {
  queue = new ResizeQueue();
});

describe('restored records', () => {
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
