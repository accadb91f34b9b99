import { describe, expect, test } from 'vitest';
import { outcomesOf } from './host.ts';
import type { PodResult, ScenarioResult } from './result.ts';
import { faultsOf, median, summaryOf, tableText } from './result.ts';
import { scenarios } from './scenarios.ts';

const inPlace = (seconds: number, kills = 0): PodResult => ({ end: 'in place', ms: seconds * 1000, kills });
const evicted = (seconds: number): PodResult => ({ end: 'evicted', ms: seconds * 1000, kills: 0 });
const resultOf = (...pods: PodResult[]): ScenarioResult => ({
  scenario: 'cold',
  interval: 10,
  runs: pods.length,
  pods,
  errors: [],
});

test('the median of an even number of values is the mean of the two middle ones', () => {
  expect([median([]), median([3]), median([5, 1, 3]), median([4, 1, 3, 10])]).toEqual([undefined, 3, 3, 3.5]);
});

test('times count only for pods that were resized in place', () => {
  expect(summaryOf(resultOf(inPlace(4), inPlace(8, 1), evicted(60)))).toEqual({
    pods: 3,
    evictions: 1,
    kills: 1,
    pending: 0,
    median: 6,
    max: 8,
    deferred: 0,
    latestEvent: undefined,
  });
});

describe('pass criteria of a scenario', () => {
  test('a scenario passes if the median time of a resize in place is below 10 s, however slow the slowest pod is', () => {
    expect(faultsOf(resultOf(inPlace(4), inPlace(9), inPlace(40)), true)).toEqual([]);
  });

  test.each([
    ['an eviction', [inPlace(4), evicted(10)], '1 of 2 pods were evicted'],
    ['an OOM kill', [inPlace(4, 1)], '1 OOM kills'],
    [
      'a pod without an outcome',
      [inPlace(4), { end: 'neither', ms: 1, kills: 0 }],
      '1 of 2 pods were not resized in time',
    ],
    [
      'a pod that the updater does not change',
      [{ end: 'not patched', ms: 1, kills: 0 }],
      '1 of 1 pods were not resized in time',
    ],
    ['a slow median', [inPlace(4), inPlace(11), inPlace(12)], 'median 11.0 s: expected less than 10 s'],
  ] as [string, PodResult[], string][])('a scenario fails with %s', (_what, pods, fault) => {
    expect(faultsOf(resultOf(...pods), true)).toEqual([fault]);
  });

  test('a scenario fails with a failed run and without any pod', () => {
    expect(faultsOf({ ...resultOf(), errors: ['run 1: broken'] }, true)).toEqual([
      'run 1: broken',
      'no pod was resized',
    ]);
  });

  test('a scenario that does not fit needs an event within 5 s for each pod', () => {
    const at = (ms: number): PodResult => ({ ...evicted(10), deferredMs: ms });
    expect(faultsOf(resultOf(at(400), at(5000)), false)).toEqual([]);
    expect(faultsOf(resultOf(at(400), at(5100)), false)).toEqual(['an event after 5.1 s: expected within 5 s']);
    expect(faultsOf(resultOf(at(400), evicted(10)), false)).toEqual([
      '1 of 2 pods have no event MemoryDecreaseDeferred',
    ]);
  });
});

test('a scenario can fail only through the shim, and fails without a result on either side', () => {
  const only = scenarios.filter(({ name }) => name === 'cold' || name === 'hot');
  const results = { direct: [resultOf(evicted(10))], shim: [resultOf(inPlace(3))] };
  expect(outcomesOf(results, { only, intervals: [10] })).toEqual([
    {
      what: 'VPA, rounds of 10 s',
      passed: 1,
      failures: [{ name: 'hot page cache', what: 'no result without the shim\nno result through the shim' }],
    },
  ]);
});

test('the table has a line for each side', () => {
  const table = tableText({ direct: [resultOf(evicted(10))], shim: [resultOf(inPlace(3))] }, [10]);
  expect(table.split('\n').slice(2)).toEqual([
    '| cold page cache | 10 s | direct | 1 | 1 | 1 | 0 | - | - | - |',
    '| cold page cache | 10 s | shim | 1 | 1 | 0 | 0 | 3.0 s | 3.0 s | - |',
  ]);
});
