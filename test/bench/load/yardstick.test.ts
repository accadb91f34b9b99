import { expect, test } from 'vitest';
import { Yardstick } from '../../../bench/load/yardstick.ts';

test('the yardstick is the mean CPU time of a piece of work', () => {
  const yardstick = new Yardstick();
  for (let times = 0; times < 5; times += 1) yardstick.measure();
  const result = yardstick.result();
  expect(result).toBeGreaterThan(0);
  expect(result).toBeLessThan(2000);
});

test('a yardstick without a measurement is an error', () => {
  expect(() => new Yardstick().result()).toThrow('the yardstick was not measured');
});
