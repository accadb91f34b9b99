import { describe, expect, test } from 'vitest';
import { type Bytes, type Limit, microseconds } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { podLimitsFor } from '../../../src/sandbox/plan/pod-limits.ts';
import type { DeclaredContainer, DeclaredPod } from '../../../src/sandbox/pods/declared-pod.ts';
import type { ContainerLimits, PodState } from '../../../src/sandbox/pods/pod-state.ts';
import { mi } from '../../support/quantities/mebibytes.ts';
import { cpu } from '../../support/resize/plan-cases.ts';
import { NO_OVERHEAD, PERIOD } from '../../support/resize/pods.ts';

const sizeOf = (mebibytes: number | 'max'): Limit<Bytes> => (mebibytes === 'max' ? 'max' : mi(mebibytes));

/** A declared container; its id is its name if it runs. */
const one = (
  name: string,
  kind: DeclaredContainer['kind'],
  limit: number | undefined,
  more: Partial<DeclaredContainer> = {},
): DeclaredContainer => ({
  name,
  id: name,
  kind,
  state: 'running',
  limits: limit === undefined ? {} : { memory: mi(limit) },
  ...more,
});
const ended = { state: 'ended' } as const;
const declaredOnly = { state: 'declared' } as const;

/** A pod with this memory limit, whose running containers have the limits that they declare. */
function pod(
  memory: number | 'max',
  containers: readonly DeclaredContainer[],
  more: Partial<DeclaredPod> = {},
): PodState {
  const running = containers.filter(({ state }) => state === 'running');
  return {
    memory: sizeOf(memory),
    cpu: { quota: 'max', period: PERIOD },
    weight: undefined,
    overhead: NO_OVERHEAD,
    containers: running.map(({ name, limits }) => {
      return { id: name, memory: limits?.memory ?? 'max', cpu: { quota: 'max' as const, period: PERIOD } };
    }),
    volumes: [],
    declared: { source: 'spec', containers, volumes: new Map(), ...more },
  };
}

/** The pod limit after an update of a container, in mebibytes; undefined when it stays. */
function podLimitAfter(state: PodState, id: string, to: number | 'max'): number | 'max' | undefined {
  const { memory } = podLimitsFor(state, [{ id, memory: sizeOf(to) }]);
  return memory === undefined || memory === 'max' ? memory : memory / MiB;
}

describe('containers that do not run', () => {
  test.each([
    ['ended', ended],
    ['created', { state: 'created' } as const],
    ['declared', declaredOnly],
  ])('A4: a tight pod limit stays tight with a second container that is %s', (_, state) => {
    const both = pod(300, [one('a', 'app', 100), one('b', 'app', 200, state)]);
    expect(podLimitAfter(both, 'a', 250)).toBe(450);
    expect(podLimitAfter(both, 'a', 50)).toBe(250);
  });

  test('A4: a loose pod limit is raised if the sum including ended containers exceeds it, and is never lowered', () => {
    const both = pod(400, [one('a', 'app', 100), one('b', 'app', 200, ended)]);
    expect(podLimitAfter(both, 'a', 200)).toBeUndefined();
    expect(podLimitAfter(both, 'a', 250)).toBe(450);
    expect(podLimitAfter(both, 'a', 50)).toBeUndefined();
  });

  test('A4: an ended container counts with its new memory limit when it is updated itself', () => {
    const both = pod(300, [one('a', 'app', 100), one('b', 'app', 200, ended)]);
    expect(podLimitAfter(both, 'b', 250)).toBe(350);
    expect(podLimitAfter(both, 'b', 'max')).toBe('max');
  });

  test('A4: an ended container counts with its CPU limit, and with the new one when it is updated itself', () => {
    const b: DeclaredContainer = { ...one('b', 'app', 200, ended), limits: { memory: mi(200), milliCpu: 200 } };
    const memoryOnly = pod('max', [one('a', 'app', 100), b]);
    const both: PodState = {
      ...memoryOnly,
      cpu: cpu(30_000),
      containers: memoryOnly.containers.map((a) => ({ ...a, cpu: cpu(10_000) })),
    };
    const podCpuAfter = (id: string, target: Omit<ContainerLimits, 'id'>) =>
      podLimitsFor(both, [{ id, ...target }]).cpu;
    expect(podCpuAfter('a', { cpu: cpu(20_000) })).toEqual(cpu(40_000));
    expect(podCpuAfter('b', { cpu: cpu(30_000) })).toEqual(cpu(40_000));
    expect(podCpuAfter('b', { cpu: cpu(15_000, 50_000) })).toEqual(cpu(40_000));
    expect(podCpuAfter('b', { cpu: cpu(10_000) })).toEqual(cpu(20_000));
    expect(podCpuAfter('b', { cpu: cpu('max') })).toEqual(cpu('max'));
    expect(podCpuAfter('b', { memory: mi(300) })).toBeUndefined();
  });

  test('a container whose limits are unknown does not count in the sum', () => {
    const unknown: DeclaredContainer = { name: 'b', id: 'b', kind: 'app', state: 'ended' };
    expect(podLimitAfter(pod(100, [one('a', 'app', 100), unknown]), 'a', 250)).toBe(250);
  });

  test("CPU limits count in millicores as in kubelet, before the kernel's minimum quota applies", () => {
    const cpu = { quota: microseconds(10_000), period: PERIOD };
    const b = { ...one('b', 'app', undefined, declaredOnly), limits: { milliCpu: 5 } };
    const state: PodState = {
      ...pod('max', [one('a', 'app', undefined), b]),
      cpu: { quota: microseconds(10_500), period: PERIOD },
      containers: [{ id: 'a', memory: 'max', cpu }],
    };
    const raised = { quota: microseconds(20_000), period: PERIOD };
    expect(podLimitsFor(state, [{ id: 'a', cpu: raised }])).toEqual({
      cpu: { quota: 20_500, period: PERIOD },
    });
  });
});

describe('init containers in the sum', () => {
  const starting = pod(300, [
    one('init', 'init', 300),
    one('web', 'app', 190, declaredOnly),
    one('log', 'app', 100, declaredOnly),
  ]);

  test('A3: lowering an init container lowers the pod limit at most to the sum of the app containers', () => {
    expect(podLimitAfter(starting, 'init', 30)).toBe(290);
    expect(podLimitAfter(starting, 'init', 295)).toBe(295);
  });

  test('raising an init container raises the pod limit', () => {
    expect(podLimitAfter(starting, 'init', 400)).toBe(400);
  });

  test('an init container counts after its end too, together with the sidecars before it', () => {
    const running = pod(300, [
      one('proxy', 'sidecar', 20),
      one('init', 'init', 280, ended),
      one('late', 'sidecar', 30),
      one('web', 'app', 100),
    ]);
    expect(podLimitAfter(running, 'web', 250)).toBeUndefined();
    expect(podLimitAfter(running, 'web', 260)).toBe(310);
    expect(podLimitAfter(running, 'proxy', 30)).toBe(310);
    expect(podLimitAfter(running, 'late', 130)).toBeUndefined();
  });

  test('an ended init container without a limit leaves the pod limit unchanged, unless a sidecar before it has a limit', () => {
    const web = one('web', 'app', 100);
    expect(podLimitAfter(pod(100, [one('init', 'init', undefined, ended), web]), 'web', 200)).toBeUndefined();
    const proxy = one('proxy', 'sidecar', 20);
    expect(podLimitAfter(pod(120, [proxy, one('init', 'init', undefined, ended), web]), 'web', 200)).toBe(220);
    expect(podLimitAfter(pod(120, [proxy, one('other', 'sidecar', undefined), web]), 'web', 200)).toBe(220);
    expect(podLimitAfter(pod(120, [one('other', 'sidecar', undefined), proxy, web]), 'web', 200)).toBeUndefined();
  });
});

test('a sidecar that loses its limit does not lower the pod limit, although kubelet counts it as 0', () => {
  const state = pod(130, [one('first', 'sidecar', 10), one('proxy', 'sidecar', 20), one('web', 'app', 100)]);
  expect(podLimitAfter(state, 'proxy', 'max')).toBeUndefined();
  expect(podLimitAfter(state, 'proxy', 15)).toBe(125);
});

describe('ephemeral containers in the sum', () => {
  test('A2: an ephemeral container does not count in the pod limit, with or without a limit', () => {
    for (const limit of [undefined, 50]) {
      const state = pod(100, [one('web', 'app', 100), one('debugger', 'ephemeral', limit)]);
      expect(podLimitAfter(state, 'web', 200)).toBe(200);
      expect(podLimitAfter(state, 'web', 50)).toBe(50);
      expect(podLimitAfter(state, 'debugger', 70)).toBeUndefined();
    }
  });

  test('A2: a container that may be ephemeral lets the pod limit be raised, but not lowered', () => {
    const containers = [one('web', 'unknown', 100), one('debugger', 'unknown', undefined)];
    const state = pod(100, containers, { source: 'inference' });
    expect(podLimitAfter(state, 'web', 200)).toBe(200);
    expect(podLimitAfter(state, 'web', 50)).toBeUndefined();
    expect(podLimitAfter(state, 'web', 'max')).toBe('max');
  });
});

test('A2: an ephemeral container that the spec does not list yet does not count in the pod limit', () => {
  const state = pod(100, [one('a', 'app', 100)]);
  const debug = { id: 'debug', memory: 'max', cpu: { quota: 'max', period: PERIOD } } as const;
  const debugged = { ...state, containers: [...state.containers, debug] };
  expect(podLimitAfter(debugged, 'a', 400)).toBe(400);
  expect(podLimitAfter(debugged, 'a', 50)).toBe(50);
});

describe('an ended container that may be an init container', () => {
  const may = { ...ended, mayBeInit: true };
  const source = 'kubelet-state' as const;

  test('A9: an ended container of unknown kind counts as an app container when the pod limit has room for it', () => {
    const state = pod(300, [one('a', 'unknown', 200, may), one('b', 'app', 100)], { source });
    expect(podLimitAfter(state, 'b', 250)).toBe(450);
  });

  test('A9: an ended container of unknown kind counts as an init container when the pod limit has no room for it', () => {
    const state = pod(300, [one('a', 'unknown', 300, may), one('b', 'app', 290)], { source });
    expect(podLimitAfter(state, 'b', 295)).toBeUndefined();
    expect(podLimitAfter(state, 'b', 310)).toBe(310);
    expect(podLimitAfter(state, 'b', 100)).toBeUndefined();
  });

  test('A9: of two ended containers that may be init containers, the first counts as one and the second as an app container', () => {
    const all = [one('a', 'unknown', 250, may), one('b', 'unknown', 100, may), one('c', 'app', 150)];
    const state = pod(250, all, { source });
    expect(podLimitAfter(state, 'c', 160)).toBe(260);
  });
});

describe('a container that is absent from the runtime and may be an init container', () => {
  const absent = { ...declaredOnly, id: undefined, mayBeInit: true } as unknown as Partial<DeclaredContainer>;
  const source = 'kubelet-state' as const;

  test('an absent container of unknown kind counts as an app container when the pod limit has room for it', () => {
    const state = pod(150, [one('a', 'app', 110), one('b', 'unknown', 40, absent)], { source });
    expect(podLimitAfter(state, 'a', 120)).toBe(160);
  });

  test('an absent container of unknown kind counts as an ended init container when the pod limit has no room for it', () => {
    const state = pod(110, [one('a', 'app', 110), one('b', 'unknown', 40, absent)], { source });
    expect(podLimitAfter(state, 'a', 120)).toBe(120);
    expect(podLimitAfter(state, 'a', 30)).toBe(40);
  });

  test('an absent container that waits to be created counts together with the sidecars that run before it', () => {
    const waiting = [one('web', 'unknown', 190, absent), one('init', 'unknown', 300, absent)];
    const state = pod(310, [one('proxy', 'app', 10), ...waiting], { source });
    expect(podLimitAfter(state, 'proxy', 20)).toBe(320);
  });

  test('the pod limit shows which one of several absent containers is an init container', () => {
    const removed = ['b', 'c', 'd'].map((name, at) => one(name, 'unknown', [40, 20, 100][at], absent));
    const state = pod(170, [one('a', 'app', 110), ...removed], { source });
    expect(podLimitAfter(state, 'a', 120)).toBe(180);
  });

  test('more than four absent containers count as init containers either all or not at all', () => {
    const many = ['b', 'c', 'd', 'e', 'f'].map((name) => one(name, 'unknown', 10, absent));
    const sized = (limit: number): PodState => pod(limit, [one('a', 'app', 110), ...many], { source });
    expect(podLimitAfter(sized(160), 'a', 120)).toBe(170);
    expect(podLimitAfter(sized(110), 'a', 120)).toBe(120);
  });
});

describe('pod-level limits in the sum', () => {
  const containers = [one('a', 'app', 100), one('b', 'app', 200)];

  test('a pod-level memory limit is the pod limit, regardless of the limits of its containers', () => {
    for (const level of [300, 250, 400]) {
      const state = pod(level, containers, { limits: { memory: mi(level) } });
      for (const to of [50, 150, 390] as const) expect(podLimitAfter(state, 'a', to)).toBeUndefined();
    }
  });

  test('a pod-level limit of CPU alone does not change the memory limit, which follows the sum', () => {
    expect(podLimitAfter(pod(300, containers, { limits: { milliCpu: 500 } }), 'a', 150)).toBe(350);
  });
});
