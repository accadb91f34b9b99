import { describe, expect, test } from 'vitest';
import { bytes, microseconds } from '../../../src/core/quantities/numbers.ts';
import { milliCpuToShares } from '../../../src/kubelet/formulas.ts';
import { assertWithinLevel } from '../../../src/sandbox/admission/pod-level.ts';
import type { DesiredPod } from '../../../src/sandbox/plan/resize-request.ts';
import type { Amounts, DeclaredContainer } from '../../../src/sandbox/pods/declared-pod.ts';
import type { Limits, PodState } from '../../../src/sandbox/pods/pod-state.ts';
import { mi } from '../../support/quantities/mebibytes.ts';

const cpu = (milli: number) => ({ quota: microseconds(milli * 100), period: microseconds(100_000) });
const of = (memory: number, milliCpu: number): Amounts => ({ memory: mi(memory), milliCpu });

/** Requests of 50m and 32Mi, limits of 100m and 96Mi. */
const app: DeclaredContainer = {
  name: 'app',
  kind: 'app',
  state: 'running',
  id: 'i0',
  limits: of(96, 100),
  requests: of(32, 50),
};
/** Without resources, so that kubelet sets the limits of the pod for it, and the shares of the pod's CPU limit. */
const helper: DeclaredContainer = { name: 'helper', kind: 'app', state: 'running', id: 'i1', limits: {}, requests: {} };

/** Pod-level requests of 100m and 64Mi, limits of 200m and 128Mi, and an overhead of 10m and 16Mi. */
const pod = (containers: readonly DeclaredContainer[] = [app, helper]): PodState => ({
  memory: mi(128 + 16),
  cpu: cpu(210),
  weight: undefined,
  overhead: { memory: mi(16), cpu: cpu(10) },
  containers: [
    { id: 'i0', memory: mi(96), cpu: cpu(100), shares: milliCpuToShares(50) },
    { id: 'i1', memory: mi(128), cpu: cpu(200), shares: milliCpuToShares(200) },
  ],
  volumes: [],
  declared: { source: 'spec', containers, limits: of(128, 200), requests: of(64, 100), volumes: new Map() },
});

interface Asked {
  readonly pod?: Limits;
  readonly app?: Limits;
  readonly helper?: Limits;
  /** In MiB; that of the pod includes the overhead. */
  readonly memory?: Readonly<Record<string, number>>;
}

const check = (asked: Asked, state = pod()) => {
  const { pod: ofPod, ...sizes } = asked.memory ?? {};
  const desired: DesiredPod = {
    pod: asked.pod ?? {},
    containers: new Map(
      Object.entries({ app: asked.app, helper: asked.helper }).flatMap(([name, limits]) =>
        limits === undefined ? [] : [[name, limits]],
      ),
    ),
    volumes: new Map(),
    memoryRequests: {
      ...(ofPod !== undefined && { pod: mi(ofPod) }),
      containers: Object.fromEntries(Object.entries(sizes).map(([name, size]) => [name, mi(size)])),
    },
  };
  return () => assertWithinLevel(state, desired);
};
const shares = (milli: number): Limits => ({ shares: milliCpuToShares(milli) });

describe('pod-level resources and those of containers', () => {
  test.each<[string, Asked, string]>([
    [
      'a memory limit of a container above that of the pod',
      { app: { memory: mi(129) } },
      'containers["app"].limits.memory: "129Mi": the limit is above that of the pod, 128Mi',
    ],
    [
      'a CPU limit of a container above that of the pod',
      { app: { cpu: cpu(201) } },
      'containers["app"].limits.cpu: "201m": the limit is above that of the pod, 200m',
    ],
    [
      'a limit that is added to a container, above that of the pod',
      { helper: { memory: mi(200) } },
      'containers["helper"].limits.memory: "200Mi": the limit is above that of the pod, 128Mi',
    ],
    [
      'a memory limit of the pod below that of a container',
      { pod: { memory: mi(95 + 16) } },
      'resources.limits.memory: "95Mi": the limit is below that of container app, 96Mi',
    ],
    [
      'a CPU limit of the pod below that of a container',
      { pod: { cpu: cpu(109) }, helper: { cpu: cpu(50) } },
      'resources.limits.cpu: "99m": the limit is below that of container app, 100m',
    ],
    [
      'a memory request of a container above that of the pod',
      { memory: { app: 65 } },
      'containers["app"].requests.memory: "65Mi": with it, the containers request 65Mi, more than the pod, 64Mi',
    ],
    [
      'memory requests of two containers above that of the pod',
      { memory: { helper: 33 } },
      'containers["helper"].requests.memory: "33Mi": with it, the containers request 65Mi, more than the pod, 64Mi',
    ],
    [
      'a CPU request of a container above that of the pod',
      { app: shares(101) },
      'containers["app"].requests.cpu: "101m": with it, the containers request 101m, more than the pod, 100m',
    ],
    [
      'a memory request of the pod below those of its containers',
      { memory: { pod: 31 + 16 } },
      'resources.requests.memory: "31Mi": the request is below that of the containers, 32Mi',
    ],
    [
      'a CPU request of the pod below those of its containers',
      { pod: shares(49 + 10) },
      'resources.requests.cpu: "49m": the request is below that of the containers, 50m',
    ],
  ])('KEP-2837: a resize is rejected with %s', (_, asked, message) => {
    expect(check(asked)).toThrow(message);
  });

  test.each<[string, Asked]>([
    ['a limit of a container equal to that of the pod', { app: { memory: mi(128), cpu: cpu(200) } }],
    [
      'a limit of the pod equal to those of its containers',
      { pod: { memory: mi(96 + 16) }, helper: { memory: mi(96) } },
    ],
    ['limits of the pod and a container that both change', { pod: { memory: mi(272) }, app: { memory: mi(256) } }],
    ['a request of a container equal to that of the pod', { app: shares(100), memory: { app: 64 } }],
    ['requests of the pod equal to those of its containers', { pod: shares(60), memory: { pod: 48 } }],
    ['requests of the pod and a container that both change', { memory: { app: 80, pod: 96 } }],
    ['the limit of the pod removed', { pod: { memory: 'max' }, app: { memory: mi(512) } }],
  ])('KEP-2837: a resize is admitted with %s', (_, asked) => {
    expect(check(asked)).not.toThrow();
  });

  test('KEP-2837: limits of sidecars, init and ephemeral containers are not compared with the limit of the pod', () => {
    for (const kind of ['sidecar', 'init', 'ephemeral'] as const)
      expect(check({ app: { memory: mi(256) } }, pod([{ ...app, kind }]))).not.toThrow();
  });

  test('KEP-2837: a limit that equals that of the pod is admitted, although the kernel rounds the latter to whole pages', () => {
    const state = pod();
    const level = bytes(100_000_000);
    const rounded = bytes(Math.floor((level + mi(16)) / 4096) * 4096);
    const declared = { ...state.declared!, limits: { memory: level, milliCpu: 200 } };
    expect(check({ app: { memory: level } }, { ...state, memory: rounded, declared })).not.toThrow();
  });

  test('a container that may be an ended init container does not count in the requests of the pod', () => {
    const ended: DeclaredContainer = { ...app, name: 'setup', kind: 'unknown', state: 'ended', mayBeInit: true };
    expect(check({ app: shares(100) }, pod([{ ...ended, id: 'i2' }, app]))).not.toThrow();
  });

  test('a container that another program has raised above the pod does not prevent other changes', () => {
    const raised: PodState = { ...pod(), memory: bytes(mi(64)) };
    expect(check({ app: { cpu: cpu(150) }, memory: { app: 16 } }, raised)).not.toThrow();
    expect(check({ app: { memory: mi(80) } }, raised)).toThrow('above that of the pod, 48Mi');
  });
});
