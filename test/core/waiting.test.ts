import { afterEach, expect, test, vi } from 'vitest';
import { steadyNow } from '../../src/core/clock.ts';
import { backOff, jittered, pause, TimeLimit, untilAborted, within } from '../../src/core/waiting.ts';
import { FakeClock } from '../support/fake-clock.ts';

afterEach(() => void vi.useRealTimers());

test('a wait for work returns the result or the error of the work', async () => {
  const { signal } = new AbortController();
  expect(await untilAborted(Promise.resolve('done'), undefined)).toBe('done');
  expect(await untilAborted(Promise.resolve('done'), signal)).toBe('done');
  await expect(untilAborted(Promise.reject(new Error('broken')), signal)).rejects.toThrow('broken');
  expect(await within(60_000, Promise.resolve('done'))).toBe('done');
  await expect(within(60_000, Promise.reject(new Error('broken')))).rejects.toThrow('broken');
});

test('a signal that aborts before or during the work ends the wait, and a later failure of the work is ignored', async () => {
  const { promise: work, reject } = Promise.withResolvers<never>();
  const abort = new AbortController();
  const waiting = untilAborted(work, abort.signal);
  abort.abort(new Error('gone'));
  await expect(waiting).rejects.toThrow('gone');
  await expect(untilAborted(work, abort.signal)).rejects.toThrow('gone');
  reject(new Error('broken'));
});

test('a wait with a time limit ends if the work does not end, also if the limit is negative', async () => {
  expect(await within(1, new Promise<string>(() => undefined))).toBeUndefined();
  expect(await within(-1, new Promise<string>(() => undefined))).toBeUndefined();
});

test('a pause lasts for its time, or rejects with the abort reason of its signal', async () => {
  const clock = new FakeClock();
  const abort = new AbortController();
  const whole = pause(clock, 1000, abort.signal);
  const cut = pause(clock, 2000, abort.signal);
  clock.pass(1000);
  await whole;
  abort.abort(new Error('gone'));
  await expect(cut).rejects.toThrow('gone');
  await expect(pause(clock, 1, abort.signal)).rejects.toThrow('gone');
});

test('the delay between attempts doubles up to the maximum, and its second half is random', () => {
  expect([0, 1, 2, 3, 4, 2000].map((attempts) => backOff(attempts, 10, 70))).toEqual([10, 10, 20, 40, 70, 70]);
  expect([0, 0.5, 1].map((random) => jittered(1000, random))).toEqual([500, 750, 1000]);
});

test.each([-86_400_000, 86_400_000])('a change of the system time by %i ms does not move a deadline', (change) => {
  vi.useFakeTimers();
  const deadline = steadyNow() + 60_000;
  vi.setSystemTime(Date.now() + change);
  const limit = new TimeLimit(deadline);
  vi.advanceTimersByTime(50_000);
  expect(limit.isOver).toBe(false);
  vi.advanceTimersByTime(10_001);
  expect(limit.isOver).toBe(true);
  limit.close();
});

test('work that has not ended at the deadline no longer delays its caller', async () => {
  const clock = new FakeClock();
  const limit = new TimeLimit(clock.now() + 1000, undefined, clock);
  const work = limit.orOver(new Promise<string>(() => undefined));
  expect(await limit.orOver(Promise.resolve('done'))).toBe('done');
  clock.pass(1000);
  expect([await work, limit.isOver]).toEqual([undefined, true]);
  limit.close();
});
