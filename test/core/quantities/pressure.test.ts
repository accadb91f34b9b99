import { expect, test } from 'vitest';
import { podPressure, pressureOf, shareOf } from '../../../src/core/quantities/pressure.ts';

const unknown = { unreclaimable: undefined, limit: 'max', memoryStalled: undefined, cpuStalled: undefined } as const;

test('pressure is the largest of the share of unreclaimable memory and the shares of stalled time', () => {
  expect(pressureOf(unknown)).toBe(0);
  expect(pressureOf({ ...unknown, unreclaimable: 50, limit: 200 })).toBe(25);
  expect(pressureOf({ ...unknown, unreclaimable: 50, limit: 200, memoryStalled: 26 })).toBe(26);
  expect(pressureOf({ ...unknown, unreclaimable: 50, limit: 200, memoryStalled: 26, cpuStalled: 27 })).toBe(27);
});

test('the pressure of a pod is that of its container or volume with the highest pressure', () => {
  const container = { ...unknown, unreclaimable: 90, limit: 100 };
  expect(podPressure([unknown, container], [])).toBe(90);
  expect(podPressure([unknown, container], [{ used: 95, size: 100 }])).toBe(95);
  expect(podPressure([], [])).toBe(0);
});

test('the share of usage is 0 without a limit', () => {
  expect([shareOf(5, 'max'), shareOf(5, 0), shareOf(5, 20)]).toEqual([0, 0, 25]);
});
