import { expect, test } from 'vitest';
import type { ContainerStep, Step } from '../../../src/sandbox/plan/step.ts';
import { ifTheyArrive, podStepsLeft } from '../../../src/sandbox/plan/pod-limits.ts';
import type { PodState } from '../../../src/sandbox/pods/pod-state.ts';
import { cpu } from '../../support/resize/resized-pod.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { mi } from '../../support/quantities/mebibytes.ts';

const container = (id: string, memory: number, quota: number) => ({ id, memory: mi(memory), cpu: cpu(quota) });
const podWith = (memory: number, quota: number): PodState => ({
  memory: mi(memory),
  cpu: cpu(quota),
  weight: undefined,
  overhead: { memory: bytes(0), cpu: cpu(0) },
  containers: [container('a', 100, 10_000), container('b', 200, 20_000)],
  volumes: [],
});
const update = (to: number, quota: number): ContainerStep => ({
  kind: 'container',
  id: 'a',
  memory: { from: mi(100), to: mi(to) },
  cpu: { from: cpu(10_000), to: cpu(quota) },
});

test.each([
  ['raises', 220, 15_000, container('a', 220, 15_000)],
  ['does not count as lower, where it lowers', 50, 5000, container('a', 100, 10_000)],
])('an unanswered update that may still arrive %s a limit', (_what, memory, quota, expected) => {
  const { containers } = ifTheyArrive(podWith(420, 35_000), [update(memory, quota)]);
  expect(containers).toEqual([expected, container('b', 200, 20_000)]);
});

test('ignores an unanswered update of a container that does not run', () => {
  const state = podWith(420, 35_000);
  expect(ifTheyArrive(state, [{ ...update(220, 15_000), id: 'c' }])).toEqual(state);
});

const unanswered = update(220, 15_000);
const raised: readonly Step[] = [
  { kind: 'pod-memory', from: mi(300), to: mi(420) },
  { kind: 'pod-cpu', from: cpu(30_000), to: cpu(35_000) },
  unanswered,
];
const left = (state: PodState, target: Parameters<typeof podStepsLeft>[1], steps = raised): Step[] =>
  podStepsLeft(state, target, {
    steps,
    unanswered: [unanswered],
    settled: [{ id: 'a', memory: mi(100), cpu: cpu(10_000) }],
  });

test('KEP-1287: the pod limits are rolled back with an unanswered update to those that a later resize alone needs', () => {
  const containers = [container('b', 250, 30_000)];
  expect(left(podWith(420, 35_000), { memory: mi(470), cpu: cpu(45_000), containers })).toEqual([
    { kind: 'pod-memory', from: mi(350), to: mi(470) },
    { kind: 'pod-cpu', from: cpu(40_000), to: cpu(45_000) },
  ]);
});

test('pod limits keep the room for an unanswered update during a later resize that does not change them', () => {
  expect(left(podWith(420, 35_000), { containers: [] })).toEqual([
    { kind: 'pod-memory', from: mi(300), to: mi(420) },
    { kind: 'pod-cpu', from: cpu(30_000), to: cpu(35_000) },
  ]);
});

test('a pod limit that was loose before an unanswered update is rolled back to its loose value', () => {
  const containers = [container('b', 240, 20_000)];
  expect(left(podWith(450, 60_000), { memory: mi(460), containers }, [unanswered])).toEqual([
    { kind: 'pod-memory', from: mi(450), to: mi(460) },
  ]);
});

test('pod limits that a later request has set are not rolled back with an unanswered update', () => {
  expect(left(podWith(420, 35_000), { memory: mi(600), cpu: cpu(60_000), containers: [] })).toEqual([]);
});

test('a pod limit that another program has changed in the meantime is rolled back to the changed value', () => {
  const containers = [container('b', 250, 20_000)];
  const [step] = left(podWith(430, 35_000), { memory: mi(470), containers });
  expect(step).toEqual({ kind: 'pod-memory', from: mi(430), to: mi(470) });
});
