import { expect, test } from 'vitest';
import { assertAnswers } from '../../../bench/calls/measure.ts';

const lengths = (direct: number, shim: number, peer: number): ReadonlyMap<string, number> =>
  new Map(Object.entries({ direct, relay: direct, peer, shim }));

test.each([
  ['as long', 'empty', lengths(0, 0, 0)],
  ['as long', 'of the same length', lengths(100, 100, 100)],
  ['as long', 'without some default values through the typed proxy', lengths(100, 100, 96)],
  ['longer', 'longer through the shim', lengths(100, 101, 100)],
] as const)('an answer that must be %s may be %s', (answer, _, found) => {
  expect(() => assertAnswers({ name: 'Call', answer }, found)).not.toThrow();
});

test.each([
  ['as long', lengths(100, 0, 100), 'Call: 0 bytes through shim, 100 directly, and not as long'],
  ['as long', lengths(100, 100, 90), 'Call: 90 bytes through peer, 100 directly, and not as long'],
  ['longer', lengths(100, 100, 100), 'Call: 100 bytes through shim, 100 directly, and not longer'],
] as const)('an answer that must be %s is rejected with lengths %j', (answer, found, message) => {
  expect(() => assertAnswers({ name: 'Call', answer }, found)).toThrow(message);
});
