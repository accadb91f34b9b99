import { describe, expect, test } from 'vitest';
import { compare, focusOn, judge } from './compare.ts';
import type { Specs } from './compare.ts';
import type { Outcome } from './report.ts';

function specs(outcomes: Readonly<Record<string, Outcome>>): Specs {
  return new Map(
    Object.entries(outcomes).map(([name, outcome]) => [
      name,
      { name, outcome, reason: `${name} ${outcome}`, seconds: 1 },
    ]),
  );
}

describe('comparing the direct run with the run through the shim', () => {
  test('finds no difference if both runs have the same results, even if specs fail in both', () => {
    const side = specs({ a: 'passed', b: 'failed', c: 'skipped' });
    expect(compare(side, side)).toMatchObject({
      specs: 3,
      passedDirect: 1,
      passedThrough: 1,
      skippedBoth: 1,
      failedBoth: [{ name: 'b' }],
      differences: [],
    });
  });

  test('lists specs that pass in the direct run and fail, are skipped or are missing through the shim', () => {
    const direct = specs({ a: 'passed', b: 'passed', c: 'passed', d: 'passed' });
    const through = specs({ a: 'passed', b: 'failed', c: 'skipped' });
    expect(compare(direct, through).differences).toEqual([
      { name: 'b', through: 'failed', reason: 'b failed' },
      { name: 'c', through: 'skipped', reason: 'c skipped' },
      { name: 'd', through: 'missing', reason: 'it was not run' },
    ]);
  });

  test('does not list specs that fail only in the direct run', () => {
    const result = compare(specs({ a: 'failed' }), specs({ a: 'passed' }));
    expect(result).toMatchObject({ onlyThrough: ['a'], differences: [] });
  });
});

describe('judging differing specs after a second run', () => {
  const first = ['real', 'flaky', 'unsteady'].map((name) => ({ name, through: 'failed' as const, reason: 'first' }));

  test('a second run separates faults of the shim from chance', () => {
    const direct = specs({ real: 'passed', flaky: 'passed', unsteady: 'failed' });
    const through = specs({ real: 'failed', flaky: 'passed', unsteady: 'failed' });
    expect(judge(first, direct, through)).toEqual({
      real: [{ name: 'real', through: 'failed', reason: 'real failed' }],
      flaky: [first[1]],
      unsteady: [first[2]],
    });
  });

  test('counts a spec as failed that the second run through the shim did not reach', () => {
    expect(judge(first.slice(0, 1), specs({ real: 'passed' }), specs({})).real).toHaveLength(1);
  });
});

describe('the focus of a second run', () => {
  test('the focus of a second run matches exactly the given specs', () => {
    const names = ['[k8s.io] A (Default) says "x|y" [Conformance]', 'B'];
    const focus = new RegExp(focusOn(names));
    for (const name of names) expect(focus.test(`CRI validation ${name}`)).toBe(true);
    expect(focus.test('CRI validation [k8s.io] A (Default) says "x|y" [Conformance] twice')).toBe(false);
  });
});
