import { describe, expect, test } from 'vitest';
import { crashPoints } from '../../src/core/crash-points.ts';
import { crashTable, unmetPoints } from './campaign.ts';
import { scenarios } from './scenarios/index.ts';

const report = (name: string, more: object = {}) => ({
  name,
  points: [],
  recoveries: [],
  failures: [],
  seconds: 1,
  ...more,
});

test('crashTable has a row for each scenario and a total', () => {
  const up = report('up', { points: ['remount-before#1', 'remount-after#1'], seconds: 12 });
  const down = report('down, far', {
    recoveries: ['remount-after#1'],
    failures: [{ point: 'remount-after#1', what: 'not at the target' }],
  });
  expect(crashTable('containerd 2.1', [up, down]).split('\n')).toEqual([
    'containerd 2.1  points  in recovery  failed  time',
    'up                   2            0       0  12 s',
    'down, far            0            1       1   1 s',
    '2 scenarios          2            1       1  13 s',
  ]);
});

describe('unmetPoints', () => {
  const simple = crashPoints.filter((point) => !/^(cgroup|backend)/.test(point));
  const files = [
    'cpu.max',
    'cpu.weight',
    'memory.max',
    'memory.high',
    'memory.high max',
    'memory.reclaim',
    'memory.low',
    'memory.min',
  ];
  const calls = ['UpdateContainerResources', 'UpdatePodSandboxResources'];
  const both = (kind: string, about: readonly string[]): string[] =>
    ['before', 'after'].flatMap((when) => about.map((what) => `${kind}-${when} ${what}`));
  const all = [...simple, ...both('cgroup-write', files), ...both('backend-call', calls)].map((point) => `${point}#1`);

  test('unmetPoints is empty if a scenario or a recovery has tested each point', () => {
    expect(unmetPoints([report('a', { points: all.slice(0, 9) }), report('b', { recoveries: all.slice(9) })])).toEqual(
      [],
    );
  });

  test('unmetPoints returns the points that were not tested', () => {
    const left = all.filter((point) => !/remount-after|memory\.high max/.test(point));
    expect(unmetPoints([report('a', { points: left })]).toSorted()).toEqual([
      'cgroup-write-after memory.high max',
      'cgroup-write-before memory.high max',
      'remount-after',
    ]);
  });
});

test('two nodes share all scenarios without overlap', () => {
  const names = (share?: string): string[] => scenarios(share).map(({ name }) => name);
  expect(names().length).toBeGreaterThan(20);
  expect(new Set(names()).size).toBe(names().length);
  expect([...names('1/2'), ...names('2/2')].toSorted()).toEqual(names().toSorted());
  expect(() => scenarios('first')).toThrow('not a share');
});

test('a title selects scenarios by name', () => {
  expect(scenarios('', 'requests alone').map(({ name }) => name)).toEqual(['ResizePod, requests alone']);
});
