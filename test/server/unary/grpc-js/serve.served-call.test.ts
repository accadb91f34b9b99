import { afterEach, expect, test, vi } from 'vitest';
import { steadyNow } from '../../../../src/core/clock.ts';
import { deadlineOf } from '../../../../src/server/unary/grpc-js/serve.ts';

afterEach(() => void vi.useRealTimers());

test('the deadline of a call stays the same when the system time changes', () => {
  vi.useFakeTimers({ toFake: ['Date', 'performance'] });
  const end = Date.now() + 5000;
  const call = { getDeadline: () => end };
  const deadline = deadlineOf(call);
  expect(deadline - steadyNow()).toBe(5000);
  vi.setSystemTime(end + 86_400_000);
  expect(deadlineOf(call)).toBe(deadline);
  expect(deadlineOf({ getDeadline: () => Infinity })).toBe(Infinity);
});
