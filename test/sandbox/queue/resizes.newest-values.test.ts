import { beforeEach, describe, expect, test } from 'vitest';
import { Code } from '../../../src/core/grpc.ts';
import { NewestValues, amountField } from '../../../src/sandbox/history/newest-values.ts';
import { FakeClock, asked, createResizes, reached, web } from '../../support/resize/fake-resizes.ts';
import { ResizeQueue, memoryInUse } from '../../support/resize/resize-queue.ts';

let queue: ResizeQueue;

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
