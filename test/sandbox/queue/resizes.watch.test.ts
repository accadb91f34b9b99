import { beforeEach, describe, expect, test } from 'vitest';
import type { ShimError } from '../../../src/core/errors.ts';
import type { ResizeEvent } from '../../../src/sandbox/queue/resize-table.ts';
import { db, stepRecord, web } from '../../support/resize/fake-resizes.ts';
import { ResizeQueue } from '../../support/resize/resize-queue.ts';

let queue: ResizeQueue;
beforeEach(() => {
  queue = new ResizeQueue();
});

describe('a watch of resizes', () => {
  test('a watch begins with the unfinished resizes, and can be limited to one pod', async () => {
    const { id } = await queue.deferred();
    await queue.deferred('1Gi', db);
    const watch = queue.resizes.watch(web);
    const other = await queue.resizes.cancel(queue.resizes.newestOf(db.sandboxId)?.id ?? '');
    await queue.resizes.cancel(id);
    watch.push({
      resize: other.id,
      pod: db,
      requester: { kind: 'api' },
      at: 0,
      what: { kind: 'step', record: stepRecord },
    });
    const events = [(await watch.next()).value, (await watch.next()).value] as ResizeEvent[];
    expect(events).toMatchObject([
      { resize: id, what: { state: 'Deferred', reason: 'MEMORY_NOT_RECLAIMABLE' } },
      { resize: id, what: { state: 'Canceled', reason: 'CANCELLED' } },
    ]);
  });

  test('a watch ends when the queue closes, after the resizes in progress have ended and without new ones', async () => {
    const watch = queue.resizes.watch();
    const reading = (async () => {
      const states: string[] = [];
      try {
        for await (const { what } of watch) if (what.kind === 'state') states.push(what.state);
      } catch (error) {
        states.push((error as ShimError).reason);
      }
      return states;
    })();
    const answer = queue.resize();
    const call = await queue.core.next();
    const closing = queue.resizes.close();
    await expect(queue.resize()).rejects.toMatchObject({ code: 14, reason: 'STOPPING' });
    expect(() => queue.resizes.watch()).toThrow(expect.objectContaining({ reason: 'STOPPING' }));
    call.succeed();
    await closing;
    expect((await answer).state).toBe('Completed');
    expect(await reading).toEqual(['Proposed', 'InProgress', 'Completed', 'STOPPING']);
  });
});
