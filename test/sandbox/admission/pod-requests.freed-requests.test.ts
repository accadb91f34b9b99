import { expect, test } from 'vitest';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import type { EntryLimits, PodEntry } from '../../../src/kubelet/checkpoint.ts';
import { areRequestsFreed } from '../../../src/sandbox/admission/pod-requests.ts';

const entry = (memory: number, milliCpu: number): PodEntry => {
  const requests: EntryLimits = { memory: bytes(memory), milliCpu };
  return {
    containers: new Map(),
    pod: undefined,
    requests: { containers: new Map([['app', requests]]), pod: undefined },
    isComplete: true,
  };
};

test('a lower request of one of several pods frees requests', () => {
  const of = (b: PodEntry): Map<string, PodEntry> => new Map(Object.entries({ a: entry(1, 1), b, c: entry(1, 1) }));
  expect(areRequestsFreed(of(entry(100, 200)), of(entry(99, 200)))).toBe(true);
  expect(areRequestsFreed(of(entry(100, 200)), of(entry(100, 200)))).toBe(false);
});

test.each<[string, Readonly<Record<string, PodEntry>>, boolean]>([
  ['the same', { a: entry(100, 200) }, false],
  ['one pod more', { a: entry(100, 200), b: entry(1, 1) }, false],
  ['more requested', { a: entry(101, 200) }, false],
  ['a pod gone', {}, true],
  ['less memory requested', { a: entry(99, 300) }, true],
  ['less CPU requested', { a: entry(100, 199) }, true],
])('a change of admitted requests (%s) frees requests: %s', (_, after, freed) => {
  expect(areRequestsFreed(new Map([['a', entry(100, 200)]]), new Map(Object.entries(after)))).toBe(freed);
});
