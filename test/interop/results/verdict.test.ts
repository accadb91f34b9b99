import { expect, test } from 'vitest';
import type { Outcome } from '../../conformance/results/report.ts';
import { compare, judge } from '../../conformance/results/compare.ts';
import type { Specs } from '../../conformance/results/compare.ts';
import { type WitnessResult, countsOf, render } from './verdict.ts';

const cases = (outcomes: Readonly<Record<string, Outcome>>): Specs =>
  new Map(
    Object.entries(outcomes).map(([name, outcome]) => [
      name,
      { name, outcome, reason: `${name} ${outcome}`, seconds: 1 },
    ]),
  );

const direct = cases({
  same: 'passed',
  worse: 'passed',
  excused: 'passed',
  once: 'passed',
  both: 'failed',
  better: 'failed',
});
const through = cases({
  same: 'passed',
  worse: 'failed',
  excused: 'failed',
  once: 'failed',
  both: 'failed',
  better: 'passed',
});
const again = cases({ worse: 'failed', excused: 'failed', once: 'passed' });

function resultOf(faults: readonly string[] = []): WitnessResult {
  const comparison = compare(direct, through);
  return {
    witness: 'h2spec',
    comparison,
    verdict: judge(comparison.differences, direct, again),
    faults,
    seconds: 60,
  };
}
const accepted = new Map([['excused', 'a reason']]);

test('a case that is worse through the shim counts as failed, unless it is accepted or passes when run again', () => {
  expect(countsOf([resultOf()], accepted)).toEqual({ passed: 2, failed: 1 });
  expect(countsOf([resultOf()], new Map())).toEqual({ passed: 2, failed: 2 });
});

test('a program that ends before it is stopped counts as failed', () => {
  expect(countsOf([resultOf(['the shim ended by SIGSEGV'])], accepted)).toEqual({ passed: 2, failed: 2 });
});

test('the rendered result lists each kind of difference with its reason', () => {
  const text = render([resultOf(['the shim ended by SIGSEGV'])], accepted);
  expect(text.split('\n')).toEqual([
    'witness  cases  passed direct  passed through  failed both  worse through  accepted  time',
    'h2spec   6      4              2               1            1              1         60 s',
    '',
    'FAILED at the end:',
    '  the shim ended by SIGSEGV',
    'FAILED through the shim, and pass directly:',
    '  worse',
    '      worse failed',
    'accepted: pass directly only:',
    '  excused',
    '      a reason',
    'differed once, and passed through the shim when run again:',
    '  once',
    '      once failed',
    'pass only through the shim:',
    '  better',
    'fail on both sides:',
    '  both',
  ]);
});
