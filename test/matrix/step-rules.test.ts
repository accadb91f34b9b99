import { describe, expect, test } from 'vitest';
import { type ReportedStep, brokenRules, readChanges } from './step-rules.ts';

const start = new Map([
  ['pod memory.max', '300'],
  ['pod cpu.max', '30000 100000'],
  ['a memory.max', '100'],
  ['a cpu.max', '10000 100000'],
  ['b memory.max', '200'],
  ['b cpu.max', '20000 100000'],
]);

const steps = (...texts: readonly string[]): ReportedStep[] =>
  texts.map((text, index) => {
    const [target = ''] = text.split(' ', 1);
    return { target, changes: readChanges(text.slice(target.length + 1)), at: index * 2, took: 1 };
  });

const broken = (end: Readonly<Record<string, string>>, ...texts: readonly string[]): string[] =>
  brokenRules(steps(...texts), start, new Map([...start, ...Object.entries(end)]));

test('readChanges reads a step with several values', () => {
  expect(readChanges('memory.max 100 -> max, cpu.max 10000 100000 -> max 100000, cpu shares 2 -> 102')).toEqual([
    { file: 'memory.max', from: '100', to: 'max' },
    { file: 'cpu.max', from: '10000 100000', to: 'max 100000' },
    { file: 'cpu shares', from: '2', to: '102' },
  ]);
});

test.each(['memory.high 1 -> 2', 'memory.max 1', 'memory.max 1 -> 2 -> 3'])('readChanges rejects "%s"', (text) => {
  expect(() => readChanges(text)).toThrow(text);
});

describe('steps that follow the rules', () => {
  test('accepts a pod that is raised before its containers', () => {
    const end = { 'pod memory.max': '500', 'a memory.max': '200', 'b memory.max': '300' };
    expect(broken(end, 'pod memory.max 300 -> 500', 'a memory.max 100 -> 200', 'b memory.max 200 -> 300')).toEqual([]);
  });

  test('accepts a container that is lowered before another is raised', () => {
    const end = { 'a memory.max': '150', 'b memory.max': '150' };
    expect(broken(end, 'b memory.max 200 -> 150', 'a memory.max 100 -> 150')).toEqual([]);
  });

  test('accepts two updates of a container whose memory and CPU change in opposite directions', () => {
    const end = {
      'pod memory.max': '250',
      'pod cpu.max': '40000 100000',
      'a memory.max': '50',
      'a cpu.max': '20000 100000',
    };
    expect(
      broken(
        end,
        'pod cpu.max 30000 100000 -> 40000 100000',
        'a memory.max 100 -> 50',
        'a cpu.max 10000 100000 -> 20000 100000',
        'pod memory.max 300 -> 250',
      ),
    ).toEqual([]);
  });

  test('accepts a limit that is removed from the pod before its container', () => {
    const end = { 'pod memory.max': 'max', 'a memory.max': 'max' };
    expect(broken(end, 'pod memory.max 300 -> max', 'a memory.max 100 -> max')).toEqual([]);
  });
});

describe('steps that break the rules', () => {
  const raised = { 'pod memory.max': '400', 'a memory.max': '200' };

  test('reports a container that is raised before the pod', () => {
    expect(broken(raised, 'a memory.max 100 -> 200', 'pod memory.max 300 -> 400')).toEqual([
      'memory.max: containers 400, pod 300',
      'memory.max: container raised, pod raised',
    ]);
  });

  test('reports a pod that is lowered before its container', () => {
    const end = { 'pod cpu.max': '25000 100000', 'a cpu.max': '5000 100000' };
    expect(broken(end, 'pod cpu.max 30000 100000 -> 25000 100000', 'a cpu.max 10000 100000 -> 5000 100000')).toEqual([
      expect.stringMatching(/^cpu.max: containers 0.3.*, pod 0.25$/),
      'cpu.max: pod lowered, container lowered',
    ]);
  });

  test('reports a container that is raised before another is lowered, although both fit into the pod limit', () => {
    const end = { 'pod memory.max': '350', 'a memory.max': '250', 'b memory.max': '100' };
    expect(
      broken(
        end,
        'pod memory.max 300 -> 450',
        'a memory.max 100 -> 250',
        'b memory.max 200 -> 100',
        'pod memory.max 450 -> 350',
      ),
    ).toEqual(['memory.max: pod raised, container raised, container lowered, pod lowered']);
  });

  test('reports a target that is not reached, and a change that was not requested', () => {
    expect(broken(raised, 'pod memory.max 300 -> 400', 'b memory.max 200 -> 150')).toEqual([
      'a memory.max ends as 100, not as 200',
      'b memory.max ends as 150, not as 200',
    ]);
  });

  test('reports a step that starts from another value than the current one', () => {
    expect(broken({ 'a memory.max': '80' }, 'a memory.max 90 -> 80')).toEqual([
      'a memory.max goes from 90, and was 100',
    ]);
  });

  test('reports a step that changes nothing', () => {
    expect(broken({}, 'a memory.max 100 -> 100')).toEqual(['a memory.max goes from 100 to 100']);
  });

  test('reports two updates of a container where one is enough', () => {
    const end = { 'a memory.max': '50', 'a cpu.max': '5000 100000' };
    expect(broken(end, 'a memory.max 100 -> 50', 'a cpu.max 10000 100000 -> 5000 100000')).toEqual([
      'a is updated 2 times',
    ]);
  });

  test('reports an update that raises and lowers limits', () => {
    const end = { 'pod cpu.max': '35000 100000', 'a memory.max': '50', 'a cpu.max': '15000 100000' };
    expect(
      broken(
        end,
        'pod cpu.max 30000 100000 -> 35000 100000',
        'a memory.max 100 -> 50, cpu.max 10000 100000 -> 15000 100000',
      ),
    ).toEqual(['a goes opposite ways in one update']);
  });

  test('reports a step that begins before the previous one has ended', () => {
    const [first, second] = steps('b memory.max 200 -> 150', 'a memory.max 100 -> 150');
    const end = new Map([...start, ['a memory.max', '150'], ['b memory.max', '150']]);
    expect(brokenRules([first!, { ...second!, at: 0.5 }], start, end)).toEqual([
      'the step for a begins at 0.5 ms, before 0.998 ms',
    ]);
  });
});
