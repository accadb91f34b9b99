import { expect, test } from 'vitest';
import { untilAborted } from '../../src/core/shared-call.ts';

test('returns what the work does, or rejects as it does', async () => {
  const { signal } = new AbortController();
  expect(await untilAborted(Promise.resolve('done'), undefined)).toBe('done');
  expect(await untilAborted(Promise.resolve('done'), signal)).toBe('done');
  await expect(untilAborted(Promise.reject(new Error('broken')), signal)).rejects.toThrow('broken');
});

test('rejects with the reason of a signal that aborts, before or during the work, whose own failure is then ignored', async () => {
  const { promise: work, reject } = Promise.withResolvers<never>();
  const abort = new AbortController();
  const waiting = untilAborted(work, abort.signal);
  abort.abort(new Error('gone'));
  await expect(waiting).rejects.toThrow('gone');
  await expect(untilAborted(work, abort.signal)).rejects.toThrow('gone');
  reject(new Error('broken'));
});
