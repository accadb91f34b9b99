import { expect, test } from 'vitest';
import type { PodState } from './limits.ts';
import { limitsSeen } from './limits.ts';
import type { State } from './recorder.ts';
import { Recorder } from './recorder.ts';

const state = (
  pod: readonly [string, string],
  a: readonly [string, string],
  b: readonly [string, string],
): PodState => ({
  'pod memory.max': pod[0],
  'pod cpu.max': pod[1],
  'a memory.max': a[0],
  'a cpu.max': a[1],
  'b memory.max': b[0],
  'b cpu.max': b[1],
});

const start = state(['300', '30000 100000'], ['100', '10000 100000'], ['200', '20000 100000']);

test('limitsSeen lists each change of memory and of CPU separately', () => {
  const raised = state(['400', '30000 100000'], ['100', '10000 100000'], ['200', '20000 100000']);
  const { seen, violations } = limitsSeen([start, raised, start], ['a', 'b']);
  expect(seen).toEqual([
    'memory: containers 300, pod 300',
    'cpu: containers 0.3, pod 0.3',
    'memory: containers 300, pod 400',
    'memory: containers 300, pod 300',
  ]);
  expect(violations).toEqual([]);
});

test.each([
  [
    'memory',
    state(['300', 'max 100000'], ['101', 'max 100000'], ['200', 'max 100000']),
    'memory: containers 301, pod 300',
  ],
  ['CPU', state(['max', '30000 100000'], ['1', '10000 50000'], ['2', '20000 100000']), 'cpu: containers 0.4, pod 0.3'],
  [
    'no limit',
    state(['300', 'max 100000'], ['max', 'max 100000'], ['1', 'max 100000']),
    'memory: containers Infinity, pod 300',
  ],
])('limitsSeen reports a sum above the pod limit: %s', (_, above, line) => {
  expect(limitsSeen([start, above, above], ['a', 'b']).violations).toEqual([line]);
});

/** Returns a recorder that reads these states in order, and then repeats the last one. */
const reading = (...states: readonly State[]): Recorder => {
  const left = [...states];
  return new Recorder(() => (left.length > 1 ? left.shift() : left[0])!);
};

test('a state is recorded once, and again after another one', () => {
  const [low, high] = [
    ['1', '1'],
    ['2', '2'],
  ];
  const recorder = reading(low, low, low, high, high, low, low);
  while (recorder.readings < 5) recorder.look();
  expect(recorder.seen).toEqual([low, high, low]);
  expect(recorder.readings).toBe(5);
});

test('values that never existed together are not recorded', () => {
  const [before, torn, after] = [
    ['64', '128'],
    ['64', '160'],
    ['32', '160'],
  ];
  const recorder = reading(before, before, torn, after, after);
  recorder.look();
  recorder.look();
  expect(recorder.seen).toEqual([before, after]);
});

test('a change that is reverted during a reading is not recorded', () => {
  const [before, torn] = [
    ['64', '128'],
    ['64', '160'],
  ];
  const recorder = reading(before, before, torn, before);
  recorder.look();
  recorder.look();
  expect(recorder.seen).toEqual([before]);
  expect(recorder.readings).toBe(2);
});
