import { expect, test } from 'vitest';
import { type PodState, limitsSeen } from './limits.ts';

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
