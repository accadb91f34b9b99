import { afterEach, expect, test, vi } from 'vitest';
import { steadyDeadline, steadyNow, systemClock, wallTime } from '../../src/core/clock.ts';

afterEach(() => void vi.useRealTimers());

test.each([-86_400_000, 86_400_000])(
  'a change of the system time by %i ms does not affect the steady clock',
  (change) => {
    vi.useFakeTimers({ toFake: ['Date'] });
    const [before, shown] = [steadyNow(), wallTime()];
    vi.setSystemTime(shown + change);
    expect(steadyNow() - before).toBeGreaterThanOrEqual(0);
    expect(steadyNow() - before).toBeLessThan(60_000);
    expect(systemClock.wallTime() - shown).toBe(change);
  },
);

test('a deadline in the system time is converted to the steady clock', () => {
  vi.useFakeTimers({ toFake: ['Date', 'performance'] });
  expect(steadyDeadline(Date.now() + 5000)).toBe(steadyNow() + 5000);
  expect(steadyDeadline(Infinity)).toBe(Infinity);
});
