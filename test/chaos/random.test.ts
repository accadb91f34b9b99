import { expect, test } from 'vitest';
import { Random, schedule } from './random.ts';

const faults = ['a', 'b', 'c', 'd', 'e'];

test('the same seed repeats the schedule, and another one does not', () => {
  expect(schedule(faults, 50, 7)).toEqual(schedule(faults, 50, 7));
  expect(schedule(faults, 50, 7)).not.toEqual(schedule(faults, 50, 8));
});

test('each fault occurs once before any occurs again', () => {
  const rounds = schedule(faults, 12, 3);
  expect(rounds).toHaveLength(12);
  expect(rounds.slice(0, 5).toSorted()).toEqual(faults);
  expect(rounds.slice(5, 10).toSorted()).toEqual(faults);
});

test('integers have both bounds and nothing beyond', () => {
  const random = new Random(1);
  const found = new Set(Array.from({ length: 500 }, () => random.integer(2, 5)));
  expect([...found].toSorted()).toEqual([2, 3, 4, 5]);
});
