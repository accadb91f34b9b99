import { beforeEach, describe, expect, test } from 'vitest';
import { Code } from '../../../src/core/grpc.ts';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { retryDelay } from '../../../src/sandbox/queue/retries.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';
import { db, outcome, reached, web } from '../../support/resize/fake-resizes.ts';
import {
  ResizeQueue,
  diskFull,
  memoryInUse,
  noBackend,
  noCgroup,
  noPod,
  notRecovered,
  podEnded,
  starting,
  staysGuaranteed,
} from '../../support/resize/resize-queue.ts';

let queue: ResizeQueue;
beforeEach(() => {
  queue = new ResizeQueue();
});

describe('a deferred resize', () => {
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
    // Half of the delay is random: the maximum is 5 s.
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
    ['the journal takes no record', diskFull, 'JOURNAL_UNAVAILABLE'],
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
