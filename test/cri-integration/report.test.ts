import { expect, test } from 'vitest';
import { readGoTests } from './report.ts';

const summary = (output: string): unknown[] =>
  [...readGoTests(output).values()].map(({ name, outcome, reason, seconds }) => [name, outcome, reason, seconds]);

test('reads the outcome, the time and the output that explains the outcome of each Go test', () => {
  const output = [
    '=== RUN   TestPods',
    '    pods_test.go:12: Create a pod',
    '--- PASS: TestPods (1.25s)',
    '=== RUN   TestLoad',
    '    load_test.go:40: Docker is not available',
    '--- SKIP: TestLoad (0.00s)',
    '=== RUN   TestExec',
    '    exec_test.go:7: ',
    '        Error:  Received unexpected error:',
    '--- FAIL: TestExec (3.00s)',
    'FAIL',
  ];
  expect(summary(output.join('\n'))).toEqual([
    ['TestPods', 'passed', '', 1.25],
    ['TestLoad', 'skipped', 'load_test.go:40: Docker is not available', 0],
    ['TestExec', 'failed', 'exec_test.go:7:\nError:  Received unexpected error:', 3],
  ]);
});

test('reads subtests of Go with the name of their test as prefix', () => {
  const output = [
    '=== RUN   TestStop',
    '=== RUN   TestStop/by_name',
    '    stop_test.go:9: not stopped',
    '    --- FAIL: TestStop/by_name (0.50s)',
    '=== RUN   TestStop/by_number',
    '    --- PASS: TestStop/by_number (0.25s)',
    '--- FAIL: TestStop (0.75s)',
  ];
  expect(summary(output.join('\n'))).toEqual([
    ['TestStop/by_name', 'failed', 'stop_test.go:9: not stopped', 0.5],
    ['TestStop/by_number', 'passed', '', 0.25],
    ['TestStop', 'failed', '', 0.75],
  ]);
});

test('assigns the output of concurrent Go tests to the test that is named before it', () => {
  const output = [
    '=== RUN   TestA',
    '=== PAUSE TestA',
    '=== RUN   TestB',
    '=== PAUSE TestB',
    '=== CONT  TestA',
    '    a_test.go:1: from A',
    '=== NAME  TestB',
    '    b_test.go:1: from B',
    '--- FAIL: TestA (1.00s)',
    '--- FAIL: TestB (1.00s)',
  ];
  expect(summary(output.join('\n'))).toEqual([
    ['TestA', 'failed', 'a_test.go:1: from A', 1],
    ['TestB', 'failed', 'b_test.go:1: from B', 1],
  ]);
});

test('a Go test that did not end counts as failed', () => {
  const output = ['=== RUN   TestRestart', '    restart_test.go:3: Restart', 'panic: test timed out after 4m0s'];
  expect(summary(output.join('\n'))).toEqual([
    ['TestRestart', 'failed', 'it did not end: restart_test.go:3: Restart\npanic: test timed out after 4m0s', 0],
  ]);
});

test('an output without Go tests has no results', () => {
  expect(readGoTests('PASS\n').size).toBe(0);
});
