import { expect, test } from 'vitest';
import { bytes, microseconds } from '../../../src/core/quantities/numbers.ts';
import { milliCpuToShares } from '../../../src/kubelet/formulas.ts';
import type { DesiredPod } from '../../../src/sandbox/plan/resize-request.ts';
import { requestsAfter, requestsNow } from '../../../src/sandbox/admission/pod-requests.ts';
import type { PodState } from '../../../src/sandbox/pods/pod-state.ts';
import { PERIOD } from '../../support/resize/pods.ts';

const NO_CPU = { quota: 'max', period: PERIOD } as const;

/** A pod with these pod-level requests, 100 bytes and 50m of overhead, and a container of 1000 bytes and 200m. */
const pod = (requests = {}): PodState => ({
  memory: 'max',
  cpu: NO_CPU,
  weight: undefined,
  overhead: { memory: bytes(100), cpu: { quota: microseconds(5000), period: PERIOD } },
  containers: [],
  volumes: [],
  declared: {
    source: 'spec',
    containers: [{ name: 'a', kind: 'app', state: 'ended', requests: { memory: bytes(1000), milliCpu: 200 } }],
    requests,
    volumes: new Map(),
  },
});
const asked = (memory?: number, milliCpu?: number, earlier?: number): DesiredPod => ({
  pod: milliCpu === undefined ? {} : { shares: milliCpuToShares(milliCpu) },
  containers: new Map(),
  volumes: new Map(),
  memoryRequests: { ...(memory !== undefined && { pod: bytes(memory) }), containers: {} },
  ...(earlier !== undefined && { earlierMemoryRequests: { pod: bytes(earlier), containers: {} } }),
});
const level = { memory: bytes(2000), milliCpu: 400 };

test.each<[string, PodState, DesiredPod, { memory: number; milliCpu: number }]>([
  ['the sum of the containers and the overhead', pod(), asked(), { memory: 1100, milliCpu: 250 }],
  ['declared for the pod, and the overhead', pod(level), asked(), { memory: 2100, milliCpu: 450 }],
  ['those of a resize of the pod, overhead included', pod(level), asked(3000, 600), { memory: 3000, milliCpu: 600 }],
  ['those of an earlier resize of the pod', pod(), asked(undefined, undefined, 3000), { memory: 3000, milliCpu: 250 }],
  ['at least the overhead', pod(), asked(50, 20), { memory: 100, milliCpu: 50 }],
])('the requests of a pod after a resize are %s', (_, state, desired, requests) => {
  expect(requestsAfter(state, desired)).toEqual(requests);
});

test('a resize of a pod to its present requests, overhead included, changes nothing', () => {
  expect(requestsAfter(pod(level), asked(2100, 450))).toEqual(requestsNow(pod(level), asked(2100, 450)));
});
