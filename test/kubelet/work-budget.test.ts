import fc from 'fast-check';
import { expect, test } from 'vitest';
import { WorkBudget } from '../../src/kubelet/work-budget.ts';
import { cases } from '../support/property-cases.ts';

test('a work budget allows 200 ms at once, then a tenth of the time', () => {
  const budget = new WorkBudget(0);
  expect(budget.waitAt(0)).toBe(0);
  budget.spend(150, 0);
  expect(budget.waitAt(0)).toBe(0);
  budget.spend(150, 0);
  expect(budget.waitAt(0)).toBe(1010);
  expect(budget.waitAt(1000)).toBe(10);
  expect(budget.waitAt(1010)).toBe(0);
  budget.spend(1, 100_000);
  budget.spend(199, 100_000);
  expect(budget.waitAt(100_000)).toBe(10);
});

test('a piece of work counts 400 ms at most, so that the next one waits 4 s at most', () => {
  const budget = new WorkBudget(0);
  budget.spend(199, 0);
  budget.spend(60_000, 0);
  expect(budget.waitAt(0)).toBe(4000);
});

test('work that waits as the budget requires stays within a tenth of the time plus 200 ms', () => {
  fc.assert(
    fc.property(fc.array(fc.record({ ms: fc.nat(400), idle: fc.nat(300) }), { minLength: 1 }), (work) => {
      const budget = new WorkBudget(0);
      let now = 0;
      let done = 0;
      for (const { ms, idle } of work) {
        now += idle;
        now += budget.waitAt(now);
        expect(budget.waitAt(now)).toBe(0);
        // A piece of work may exceed the budget, and the next piece waits longer.
        expect(done).toBeLessThanOrEqual(200 + now / 10);
        budget.spend(ms, now);
        done += ms;
      }
    }),
    cases(300),
  );
});
