import { afterEach, expect, test, vi } from 'vitest';
import { steadyNow, TimeLimit } from '../../src/core/clock.ts';
import { FakeClock } from '../support/resize/fake-resizes.ts';

afterEach(() => void vi.useRealTimers());

test.each([-86_400_000, 86_400_000])('a change of the system time by %i ms does not move the end', (change) => {
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

test('work that is not done at the end is left', async () => {
  const clock = new FakeClock();
  const limit = new TimeLimit(clock.now() + 1000, undefined, clock);
  const work = limit.orOver(new Promise<string>(() => undefined));
  expect(await limit.orOver(Promise.resolve('done'))).toBe('done');
  clock.pass(1000);
  expect([await work, limit.isOver]).toEqual([undefined, true]);
  limit.close();
});
