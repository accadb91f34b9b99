import { describe, expect, test } from 'vitest';
import { bytes, microseconds } from '../../../src/core/quantities/numbers.ts';
import type { PodEntry } from '../../../src/kubelet/checkpoint.ts';
import { addRequests, admittedRequests, podRequests } from '../../../src/sandbox/admission/pod-requests.ts';
import type { Amounts, ContainerKind } from '../../../src/sandbox/pods/declared-pod.ts';
import type { SpecContainer } from '../../../src/sandbox/pods/pod-spec.ts';

const amounts = (memory: number, milliCpu: number): Amounts => ({ memory: bytes(memory), milliCpu });
const container = (kind: ContainerKind, memory: number, milliCpu: number) => ({
  kind,
  requests: amounts(memory, milliCpu),
});
const period = microseconds(100_000);

describe('the requests of a pod', () => {
  const app = container('app', 100, 200);
  test.each<[string, Parameters<typeof podRequests>[0]['containers'], number, number]>([
    ['app containers and sidecars add up', [container('sidecar', 10, 20), app, app], 210, 420],
    ['an ephemeral container requests nothing', [app, container('ephemeral', 1000, 1000)], 100, 200],
    [
      'an init container counts with the sidecars before it',
      [container('sidecar', 10, 20), container('init', 95, 1), app],
      110,
      220,
    ],
    [
      'and is what the pod requests if that is more',
      [container('sidecar', 10, 20), container('init', 200, 1), app],
      210,
      220,
    ],
    [
      'a sidecar after it does not count with it',
      [container('init', 200, 1), container('sidecar', 10, 20), app],
      200,
      220,
    ],
    ['an app container does not count with an init container', [app, container('init', 150, 1)], 150, 200],
    ['the largest init container counts', [container('init', 300, 1), container('init', 200, 400), app], 300, 400],
    ['a container without requests adds nothing', [{ kind: 'app' }, app], 100, 200],
    ['one of unknown kind is an app container', [container('unknown', 1, 2), app], 101, 202],
    ['no containers request nothing', [], 0, 0],
  ])('in the requests of a pod, %s', (_, containers, memory, milliCpu) => {
    expect(podRequests({ containers })).toEqual({ memory, milliCpu });
  });

  test('pod-level requests replace the sum of the containers per resource, and the overhead is added', () => {
    const overhead = { memory: bytes(5), cpu: { quota: microseconds(25_000), period } };
    const unlimited = { memory: bytes(5), cpu: { quota: 'max' as const, period } };
    expect(podRequests({ containers: [app], level: { memory: bytes(7) }, overhead })).toEqual({
      memory: 12,
      milliCpu: 450,
    });
    expect(podRequests({ containers: [app], level: { milliCpu: 7 }, overhead: unlimited })).toEqual({
      memory: 105,
      milliCpu: 7,
    });
  });
});

describe('requests that kubelet has admitted', () => {
  const entry = (requests?: PodEntry['requests']): PodEntry => ({
    containers: new Map(),
    pod: undefined,
    ...(requests && { requests }),
    isComplete: true,
  });
  const admitted = entry({
    containers: new Map([
      ['init', amounts(500, 1)],
      ['app', amounts(100, 200)],
    ]),
    pod: undefined,
  });
  const spec = [
    { name: 'init', kind: 'init' },
    { name: 'app', kind: 'app', requests: amounts(1, 1) },
    { name: 'proxy', kind: 'app', requests: amounts(10, 20) },
  ] as unknown as readonly SpecContainer[];

  test('without a spec, the admitted requests of all listed containers add up', () => {
    expect(admittedRequests(admitted, undefined, undefined)).toEqual({ memory: 600, milliCpu: 201 });
  });
  test('with a spec, each container counts by its kind, with its admitted or otherwise its declared requests', () => {
    expect(admittedRequests(admitted, spec, undefined)).toEqual({ memory: 500, milliCpu: 220 });
  });
  test('admitted requests include pod-level requests and the overhead', () => {
    const level = entry({ containers: new Map(), pod: { memory: bytes(50) } });
    const overhead = { memory: bytes(5), cpu: { quota: microseconds(1000), period } };
    expect(admittedRequests(level, undefined, overhead)).toEqual({ memory: 55, milliCpu: 10 });
  });
  test('an entry without requests counts with the requests of the spec, or with none', () => {
    expect(admittedRequests(entry(), undefined, undefined)).toEqual({ memory: 0, milliCpu: 0 });
    expect(admittedRequests(entry(), spec, undefined)).toEqual({ memory: 11, milliCpu: 21 });
  });
});

test('addRequests adds up memory and CPU', () => {
  expect(addRequests([])).toEqual({ memory: 0, milliCpu: 0 });
  expect(
    addRequests([
      { memory: bytes(1), milliCpu: 2 },
      { memory: bytes(3), milliCpu: 4 },
    ]),
  ).toEqual({ memory: 4, milliCpu: 6 });
});
