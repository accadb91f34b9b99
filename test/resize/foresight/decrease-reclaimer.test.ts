import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { assessDecrease, backoffMs, idleMs, marginOf, restMs } from '../../../src/resize/foresight/decrease-policy.ts';
import { bytes } from '../../../src/core/quantities/index.ts';
import { cases } from '../../support/property-cases.ts';
import { MiB } from '../../support/resize/pods.ts';
import { FakeKubeletNode } from '../../support/fake-decreasing-pod.ts';

const MINUTE = 60_000;

let node: FakeKubeletNode;
beforeEach(() => {
  node = new FakeKubeletNode();
});
afterEach(() => node.reclaimer.close());

const events = () => node.counters.snapshot().foresight;
const asked = (uid = 'a'): number => (node.cgroups.get(uid)?.asked ?? []).reduce((sum, amount) => sum + amount, 0);

describe('page cache is in the way', () => {
  test('it is reclaimed to the margin below the limit, in steps, and then kubelet is waited for', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
    node.admit('a', 64);
    await node.pass(5000);
    expect(memory.current).toBe((64 - 8) * MiB);
    expect(asked()).toBe((120 - 56) * MiB);
    expect(memory.asked.length).toBeGreaterThan(1);
    expect(memory.highs).toEqual([]);
    expect(node.reclaimer.reportOf('a')).toMatchObject({ state: 'InProgress', reclaimed: 64 * MiB });
    expect(node.kubeletTries('a')).toBe(true);
    await node.pass(2000);
    expect(node.reclaimer.reportOf('a')).toBeUndefined();
    expect(events()).toEqual({ stuck: 1, unstuck: 1 });
    expect(node.counters.snapshot().foresightReclaimedBytes).toBe(64 * MiB);
    expect(node.clock.next).toBeUndefined();
  });

  test('use that climbs back is brought down again, less and less often, for ten minutes', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
    node.admit('a', 64);
    const rounds: number[] = [];
    const start = node.clock.now();
    for (let second = 0; second < 660; second += 1) {
      const before = memory.asked.length;
      await node.pass(1000);
      if (memory.asked.length > before) rounds.push(Math.round((node.clock.now() - start) / 1000));
      memory.cache = 100 * MiB;
    }
    const gaps = rounds.slice(1).map((at, index) => at - (rounds[index] ?? 0));
    expect(gaps.slice(0, 5).every((gap, index) => gap >= 2 ** index)).toBe(true);
    expect(Math.max(...gaps)).toBeLessThan(33);
    expect(rounds.length).toBeLessThan(30);
    expect(rounds.at(-1)).toBeGreaterThan(560);
    expect(rounds.at(-1)).toBeLessThanOrEqual(601);
    expect(events()).toEqual({ stuck: 1, given_up: 1 });
    expect(node.reclaimer.reportOf('a')).toMatchObject({
      state: 'Deferred',
      reason: 'RECLAIM_TIMEOUT',
      message: 'given up after 10 minutes: memory usage kept rising again after reclaim',
    });
    // What kubelet admits next is another matter.
    memory.cache = 30 * MiB;
    node.admit('a', 48);
    await node.pass(1000);
    expect(memory.current).toBe(40 * MiB);
    expect(events()).toEqual({ stuck: 2, given_up: 1 });
  });

  test('until kubelet has admitted something else', async () => {
    const memory = node.pod('a', { limit: 192, anon: 100, cache: 20 });
    node.admit('a', 64);
    await node.pass(1000);
    expect(node.reclaimer.reportOf('a')).toMatchObject({ state: 'Deferred' });
    node.admit('a', 192);
    await node.pass(1000);
    expect(node.reclaimer.reportOf('a')).toBeUndefined();
    expect(memory.asked).toEqual([]);
    expect(events()).toEqual({ stuck: 1, deferred: 1 });
  });

  test('not while a resize of the pod is under way, which may be this one', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
    node.busy.add('a');
    node.admit('a', 64);
    await node.pass(10_000);
    expect(memory.asked).toEqual([]);
    memory.beforeReclaim = () => Promise.resolve(void node.busy.add('a'));
    node.release('a');
    await node.pass(10_000);
    expect(memory.asked).toHaveLength(1);
    memory.beforeReclaim = () => Promise.resolve();
    node.limits.set('a', 64);
    node.release('a');
    await node.pass(1000);
    expect([memory.asked.length, node.reclaimer.reportOf('a')]).toEqual([1, undefined]);
  });

  test('dirty pages that do not come free: Deferred, with the figures; tried again, and done once they do', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 10, stuck: 90 });
    node.admit('a', 64);
    await node.pass(20_000);
    expect(node.reclaimer.reportOf('a')).toMatchObject({ state: 'Deferred', reason: 'RECLAIM_TIMEOUT' });
    expect(node.reclaimer.reportOf('a')?.message).toContain('reclaim frees no more of the');
    memory.stuck = 0;
    memory.cache = 90 * MiB;
    await node.pass(40_000);
    expect(memory.current).toBe(56 * MiB);
    expect(node.deferred.map(([uid, { reason }]) => [uid, reason])).toEqual([['a', 'RECLAIM_TIMEOUT']]);
  });
});

describe('nothing to reclaim', () => {
  test('Deferred with the figures, told once; looked at again with backoff, and done once it is freed', async () => {
    const memory = node.pod('a', { limit: 192, anon: 60, cache: 40 });
    node.admit('a', 64);
    await node.pass(30_000);
    expect(memory.asked).toEqual([]);
    const message =
      `container a: kubelet is to lower memory.max from ${192 * MiB} to ${64 * MiB}, but ${60 * MiB} bytes are in use that ` +
      `cannot be reclaimed (anon ${60 * MiB}, shmem 0, unevictable 0; memory.current ${100 * MiB}): expected less than ${56 * MiB}`;
    expect(node.reclaimer.reportOf('a')).toMatchObject({
      state: 'Deferred',
      reason: 'MEMORY_NOT_RECLAIMABLE',
      message,
    });
    expect(node.deferred).toMatchObject([['a', { message }]]);
    memory.anon = 30 * MiB;
    await node.pass(31_000);
    expect(memory.current).toBe(56 * MiB);
    expect(events()).toEqual({ stuck: 1, deferred: 1 });
  });

  test('however often kubelet writes meanwhile: looked at again as soon as without', async () => {
    const memory = node.pod('a', { limit: 192, anon: 60, cache: 40 });
    node.admit('a', 64);
    for (let n = 0; n < 50; n += 1) {
      await node.pass(20);
      node.reclaimer.check();
    }
    memory.anon = 30 * MiB;
    await node.pass(3000);
    expect(memory.current).toBe(56 * MiB);
  });

  test('less in use than the limit: kubelet does it by itself, and nothing is said', async () => {
    const memory = node.pod('a', { limit: 192, anon: 60, cache: 3 });
    node.admit('a', 64);
    await node.pass(5000);
    expect([node.reclaimer.reportOf('a'), memory.asked, events()]).toEqual([undefined, [], {}]);
    expect(node.kubeletTries('a')).toBe(true);
    await node.pass(2000);
    expect(events()).toEqual({});
  });

  test('a kernel without memory.reclaim', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
    memory.hasReclaim = false;
    node.admit('a', 64);
    await node.pass(1000);
    expect(node.reclaimer.reportOf('a')?.message).toContain('no memory.reclaim');
    expect(memory.highs).toEqual([]);
  });
});

describe('pods', () => {
  test('many at once take no more of the node than one', async () => {
    const names = Array.from({ length: 10 }, (_, index) => `pod-${index}`);
    for (const name of names) node.pod(name, { limit: 192, anon: 20, cache: 100 });
    const start = node.clock.now();
    for (const name of names) node.admit(name, 64);
    let last = start;
    for (let round = 0; round < 200; round += 1) {
      await node.pass(50);
      const total = names.reduce((sum, name) => sum + asked(name), 0);
      // 512 MiB in a second, and a step more.
      expect(total).toBeLessThanOrEqual(((node.clock.now() - start) / 1000) * 512 * MiB + 64 * MiB);
      if (total < 640 * MiB) last = node.clock.now();
    }
    expect(names.map((name) => node.cgroups.get(name)?.current)).toEqual(names.map(() => 56 * MiB));
    expect(last - start).toBeLessThan(3000);
  });

  test('one that ends meanwhile, or is removed', async () => {
    const [gone, removed] = [
      node.pod('gone', { limit: 192, anon: 20, cache: 100 }),
      node.pod('removed', { limit: 192, anon: 20, cache: 100 }),
    ];
    gone.beforeReclaim = () => Promise.resolve(void (gone.isGone = true));
    removed.beforeReclaim = () => {
      node.reclaimer.podRemoved('removed');
      return Promise.resolve();
    };
    node.admit('gone', 64);
    node.admit('removed', 64);
    await node.pass(5000);
    expect([gone.asked.length, removed.asked.length]).toEqual([1, 1]);
    expect(['gone', 'removed'].map((uid) => node.reclaimer.reportOf(uid))).toEqual([undefined, undefined]);
  });

  test('nothing more once it is closed', async () => {
    const memory = node.pod('a', { limit: 192, anon: 100, cache: 20 });
    node.admit('a', 64);
    await node.pass(1000);
    node.reclaimer.close();
    memory.anon = 0;
    node.reclaimer.check();
    await node.pass(MINUTE);
    expect(memory.asked).toEqual([]);
  });
});

test('the margin is the larger of 5 % and 8 MiB', () => {
  expect([64, 160, 1000].map((mebibytes) => marginOf(bytes(mebibytes * MiB)) / MiB)).toEqual([8, 8, 50]);
});

test('whatever is in use: reclaimed is what is needed and the margin, and only where that can be had', () => {
  const size = fc.integer({ min: 0, max: 2 ** 40 });
  fc.assert(
    fc.property(size, size, fc.nat(100), (limit, current, percent) => {
      const unreclaimable = bytes(Math.floor((current * percent) / 100));
      const verdict = assessDecrease(bytes(limit), { current: bytes(current), unreclaimable });
      if (current < limit) expect(verdict.kind).toBe('fits');
      else if (verdict.kind === 'reclaim') {
        expect(verdict.goal).toBe(limit - marginOf(bytes(limit)));
        expect(unreclaimable).toBeLessThan(verdict.goal);
      } else {
        expect(verdict.kind).toBe('stuck');
        expect(unreclaimable).toBeGreaterThanOrEqual(limit - marginOf(bytes(limit)));
      }
    }),
    cases(500),
  );
});

test('waits grow to an end', () => {
  expect([1, 2, 3, 5, 6, 100].map(backoffMs)).toEqual([1000, 2000, 4000, 16_000, 30_000, 30_000]);
  expect([1, 2, 5, 8].map(idleMs)).toEqual([50, 100, 800, 800]);
  expect([restMs(64 * MiB, 7), restMs(MiB, 40), restMs(0, 0)]).toEqual([125, 120, 0]);
});
