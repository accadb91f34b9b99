import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { sayingWaits } from '../../src/resizectl/waiting.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test('a command reports what it waits for after 5 s, and every 30 s until it has the result', async () => {
  const said: string[] = [];
  const work = Promise.withResolvers<string>();
  const result = sayingWaits('the node', work.promise, (line) => void said.push(line));
  await vi.advanceTimersByTimeAsync(4999);
  expect(said).toEqual([]);
  await vi.advanceTimersByTimeAsync(30_001);
  expect(said).toEqual(['still waiting for the node, for 5 s', 'still waiting for the node, for 35 s']);
  work.resolve('found');
  expect(await result).toBe('found');
  await vi.advanceTimersByTimeAsync(60_000);
  expect(said).toHaveLength(2);
});

test('an error ends the wait', async () => {
  await expect(sayingWaits('it', Promise.reject(new Error('no')), () => undefined)).rejects.toThrow('no');
  expect(vi.getTimerCount()).toBe(0);
});
