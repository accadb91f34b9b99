import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Deadlines } from '../../../src/runtime/channel/channel.ts';

interface Item {
  readonly name: string;
  due: number;
}

let expired: string[];
let deadlines: Deadlines<Item>;
const item = (name: string, ms: number): Item => ({ name, due: performance.now() + ms });

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance', 'Date'] });
  expired = [];
  deadlines = new Deadlines(({ name }) => expired.push(name));
});
afterEach(() => {
  vi.useRealTimers();
});

test('items expire when they are due, in any order of additions, with one timer', () => {
  for (const [name, ms] of [
    ['c', 300],
    ['a', 100],
    ['b', 200],
    ['never', Infinity],
  ] as const)
    deadlines.add(item(name, ms));
  expect(vi.getTimerCount()).toBe(1);
  vi.advanceTimersByTime(99);
  expect(expired).toEqual([]);
  vi.advanceTimersByTime(1);
  expect(expired).toEqual(['a']);
  expect(vi.getTimerCount()).toBe(1);
  vi.advanceTimersByTime(200);
  expect(expired).toEqual(['a', 'b', 'c']);
  expect([deadlines.size, vi.getTimerCount()]).toEqual([1, 0]);
});

test('a removed item does not expire', () => {
  const [first, second] = [item('first', 100), item('second', 200)];
  deadlines.add(first);
  deadlines.add(second);
  deadlines.delete(first);
  vi.advanceTimersByTime(1000);
  expect(expired).toEqual(['second']);
});

test('an item that is due already expires in the next turn, not at once', () => {
  deadlines.add(item('late', -5));
  expect(expired).toEqual([]);
  vi.advanceTimersByTime(1);
  expect(expired).toEqual(['late']);
});

test('an item can become due earlier, and an item added while others expire also expires', () => {
  const moved = item('moved', 500);
  deadlines.add(moved);
  moved.due = performance.now() + 10;
  deadlines.add(moved);
  vi.advanceTimersByTime(10);
  expect(expired).toEqual(['moved']);
  const chained = new Deadlines<Item>(({ name }) => {
    expired.push(name);
    if (name === 'one') chained.add(item('two', 50));
  });
  chained.add(item('one', 20));
  vi.advanceTimersByTime(70);
  expect(expired).toEqual(['moved', 'one', 'two']);
});

test('a change of the system time expires nothing, and an item beyond the longest timer does not expire early', () => {
  deadlines.add(item('hour', 3_600_000));
  deadlines.add(item('months', 2 ** 32));
  vi.setSystemTime(Date.now() + 86_400_000);
  vi.advanceTimersByTime(3_599_999);
  expect(expired).toEqual([]);
  vi.advanceTimersByTime(1);
  expect(expired).toEqual(['hour']);
  vi.advanceTimersByTime(2 ** 31);
  expect(expired).toEqual(['hour']);
  vi.advanceTimersByTime(2 ** 32);
  expect(expired).toEqual(['hour', 'months']);
});

test('trim clears the timer when no items are left', () => {
  const only = item('only', 100);
  deadlines.add(only);
  deadlines.trim();
  expect(vi.getTimerCount()).toBe(1);
  deadlines.delete(only);
  deadlines.trim();
  expect(vi.getTimerCount()).toBe(0);
  deadlines.add(item('again', 10));
  vi.advanceTimersByTime(10);
  expect(expired).toEqual(['again']);
});
