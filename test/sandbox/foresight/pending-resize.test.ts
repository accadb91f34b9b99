import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { microseconds } from '../../../src/core/quantities/numbers.ts';
import type { PodEntry } from '../../../src/kubelet/checkpoint.ts';
import type { PendingResize } from '../../../src/sandbox/foresight/pending-resize.ts';
import {
  boundDecrease,
  boundIncrease,
  derivePendingResize,
  hasPendingMemory,
  isMemoryComplete,
  matchesContainerUpdate,
  matchesPodUpdate,
  stateAfterPending,
} from '../../../src/sandbox/foresight/pending-resize.ts';
import type { DeclaredContainer, DeclaredPod } from '../../../src/sandbox/pods/declared-pod.ts';
import type { PodState } from '../../../src/sandbox/pods/pod-state.ts';
import { cases } from '../../support/property-cases.ts';
import { mi } from '../../support/quantities/mebibytes.ts';
import type { Counted } from '../../support/resize/declared-pods.ts';
import { kubeletLimit } from '../../support/resize/declared-pods.ts';
import { entry, names, pendingMemory, state } from '../../support/resize/pending-pods.ts';
import { NO_OVERHEAD, PERIOD } from '../../support/resize/pods.ts';

describe('derivePendingResize', () => {
  test('derivePendingResize returns the values that kubelet has admitted and not yet applied', () => {
    expect(pendingMemory(state({ a: 192 }, 192), entry({ a: 64 }), entry({ a: 192 }))).toEqual({
      pod: 64,
      containers: { 'id-a': 64 },
    });
  });

  test('derivePendingResize returns the changed one of two containers, and the sum of both for the pod', () => {
    const found = pendingMemory(state({ a: 128, b: 64 }, 192), entry({ a: 32, b: 64 }), entry({ a: 128, b: 64 }));
    expect(found).toEqual({ pod: 96, containers: { 'id-a': 32 } });
  });

  test('KEP-1287: no resize is pending without a record, when all is applied, or after another writer changed the kernel values', () => {
    expect(pendingMemory(state({ a: 192 }, 192), undefined)).toBeUndefined();
    expect(pendingMemory(state({ a: 64 }, 64), entry({ a: 64 }), entry({ a: 64 }))).toBeUndefined();
    expect(pendingMemory(state({ a: 128 }, 128), entry({ a: 64 }), entry({ a: 64 }))).toBeUndefined();
  });

  test('derivePendingResize compares with the kernel values if there is no actuated record', () => {
    expect(pendingMemory(state({ a: 192 }, 192), entry({ a: 64 }))).toEqual({ pod: 64, containers: { 'id-a': 64 } });
  });

  test('derivePendingResize handles a container without a limit, one that is not running and an unknown one', () => {
    expect(
      pendingMemory(state({ a: 192 }, 'max'), entry({ a: 64, b: undefined }), entry({ a: 192, b: undefined })),
    ).toEqual({
      pod: undefined,
      containers: { 'id-a': 64 },
    });
    // b has not started yet, and the pod limit includes it.
    expect(pendingMemory(state({ a: 192 }, 256), entry({ a: 64, b: 64 }), entry({ a: 192, b: 64 }))).toEqual({
      pod: 128,
      containers: { 'id-a': 64 },
    });
    expect(pendingMemory(state({ a: 192, x: 8 }, 200), entry({ a: 64 }), entry({ a: 192 }))).toEqual({
      pod: undefined,
      containers: { 'id-a': 64 },
    });
  });

  test('the pending pod limit is left out if an init container determines it, or if the record is incomplete', () => {
    const now = state({ a: 192 }, 512);
    expect(pendingMemory(now, entry({ a: 64 }), entry({ a: 192 }))?.pod).toBeUndefined();
    const torn = entry({ a: 64 }, { isComplete: false });
    expect(pendingMemory(state({ a: 192 }, 192), torn, entry({ a: 192 }))?.pod).toBeUndefined();
  });

  test('the pending pod limit includes pod-level limits, alone or with containers, and the overhead', () => {
    const level = (mebibytes: number) => ({ pod: { memory: mi(mebibytes) } });
    const now = state({ a: 64 }, 256);
    expect(
      pendingMemory(now, entry({ a: 64, b: undefined }, level(128)), entry({ a: 64, b: undefined }, level(256))),
    ).toEqual({
      pod: 128,
      containers: {},
    });
    const more = { ...state({ a: 64 }, 266), overhead: { ...NO_OVERHEAD, memory: mi(10) } };
    expect(pendingMemory(more, entry({ a: 32 }, level(128)), entry({ a: 64 }, level(256)))).toEqual({
      pod: 138,
      containers: { 'id-a': 32 },
    });
  });

  test('pending CPU limits are converted as by kubelet: a quota from milliCPU, at least 1 ms', () => {
    const cpu = (milliCpu: number) => ({
      containers: new Map([['a', { milliCpu }]]),
      pod: undefined,
      isComplete: true,
    });
    const now = (quota: number): PodState => ({
      ...state({ a: 64 }, 64),
      cpu: { quota: microseconds(quota), period: PERIOD },
    });
    const found = derivePendingResize(now(20_000), { allocated: cpu(5), actuated: cpu(200), names });
    expect(found?.pod.cpu).toEqual({ quota: 1000, period: PERIOD });
    expect(found?.containers.get('id-a')).toEqual({ cpu: { quota: 1000, period: PERIOD } });
    expect(derivePendingResize(now(30_000), { allocated: cpu(5), actuated: cpu(200), names })?.pod.cpu).toBeUndefined();
  });

  test('the final pod limit is known in the middle of a resize if the pod limit is the sum of its containers', () => {
    const [allocated, actuated] = [entry({ a: 64, b: 48 }), entry({ a: 128, b: 128 })];
    expect(pendingMemory(state({ a: 64, b: 128 }, 192), allocated, actuated)?.pod).toBe(112);
  });

  test('the pod limit found at the start of a resize counts if the current limit matches neither sum', () => {
    const allocated = entry({ a: 64, b: 32 });
    const start = derivePendingResize(state({ a: 128, b: 128 }, 256), {
      allocated,
      actuated: entry({ a: 128, b: 128 }),
      names,
    });
    const then = { allocated: entry({ a: 64, b: 32 }), actuated: entry({ a: 64, b: 128 }), names };
    const middle = state({ a: 64, b: 128 }, 256);
    expect(derivePendingResize(middle, then)?.pod.memory).toBeUndefined();
    const before = { allocated, limits: start!.pod };
    expect(derivePendingResize(middle, { ...then, before })?.pod.memory).toBe(mi(96));
    // kubelet has admitted other values since then.
    expect(
      derivePendingResize(middle, { ...then, allocated: entry({ a: 64, b: 16 }), before })?.pod.memory,
    ).toBeUndefined();
  });
});

describe('derivePendingResize with the declared pod', () => {
  const declares = (containers: readonly DeclaredContainer[], source: DeclaredPod['source'] = 'spec') => ({
    declared: { source, containers, volumes: new Map() },
  });
  const app = (name: string): DeclaredContainer => ({ name, kind: 'app', state: 'running', id: `id-${name}` });
  const setup: DeclaredContainer = { name: 'setup', kind: 'init', state: 'ended', id: 'id-setup' };

  test('KEP-1287: an init container that kubelet 1.36 lists counts as a maximum in the pending pod limit', () => {
    const pod = { ...state({ a: 128, b: 64 }, 192), ...declares([setup, app('a'), app('b')]) };
    const done = entry({ a: 128, b: 64, setup: 100 });
    const pending = (memory: Readonly<Record<string, number>>) => pendingMemory(pod, entry(memory), done)?.pod;
    expect(pending({ a: 32, b: 64, setup: 100 })).toBe(100);
    expect(pending({ a: 64, b: 64, setup: 100 })).toBe(128);
    expect(pending({ a: 128, b: 128, setup: 100 })).toBe(256);
  });

  test('an init container that kubelet up to 1.35 does not list counts with the limit of the spec', () => {
    const large = { ...setup, limits: { memory: mi(300) } };
    const pod = { ...state({ a: 192 }, 300), ...declares([large, app('a')]) };
    expect(pendingMemory(pod, entry({ a: 64 }), entry({ a: 192 }))).toEqual({ pod: 300, containers: { 'id-a': 64 } });
  });

  test('sidecars before an init container count with it, and sidecars after it do not', () => {
    const sidecar = (name: string): DeclaredContainer => ({ ...app(name), kind: 'sidecar' });
    const pod = { ...state({ a: 16, b: 16, c: 16 }, 216), ...declares([sidecar('a'), setup, sidecar('b'), app('c')]) };
    const [allocated, done] = [entry({ a: 32, b: 64, c: 16, setup: 200 }), entry({ a: 16, b: 16, c: 16, setup: 200 })];
    expect(pendingMemory(pod, allocated, done)?.pod).toBe(232);
  });

  test('the pending pod CPU limit counts an init container as a maximum', () => {
    const cpu = (a: number, init: number): PodEntry => ({
      containers: new Map([
        ['a', { milliCpu: a }],
        ['setup', { milliCpu: init }],
      ]),
      pod: undefined,
      isComplete: true,
    });
    const now = { ...state({ a: 64 }, 64), cpu: { quota: microseconds(40_000), period: PERIOD } };
    const pod = { ...now, ...declares([setup, app('a')]) };
    const found = derivePendingResize(pod, { allocated: cpu(600, 300), actuated: cpu(400, 300), names });
    expect(found?.pod.cpu).toEqual({ quota: 60_000, period: PERIOD });
  });

  test('an ephemeral container does not hide the pod limit in the middle of a resize', () => {
    const debug: DeclaredContainer = { name: 'debug', kind: 'ephemeral', state: 'running', id: 'id-debug' };
    const pod = { ...state({ a: 64, b: 128, debug: 8 }, 192), ...declares([app('a'), app('b'), debug]) };
    expect(pendingMemory(pod, entry({ a: 64, b: 48 }), entry({ a: 128, b: 128 }))?.pod).toBe(112);
  });

  test('a container that waits to be created counts in the middle of a resize', () => {
    const waits: DeclaredContainer = { name: 'c', kind: 'app', state: 'declared' };
    const pod = { ...state({ a: 64, b: 128 }, 224), ...declares([app('a'), app('b'), waits]) };
    const done = entry({ a: 128, b: 128, c: 32 });
    expect(pendingMemory(pod, entry({ a: 64, b: 48, c: 32 }), done)?.pod).toBe(144);
  });

  describe('kubelet state, which does not mark init containers', () => {
    const maybe: DeclaredContainer = { ...setup, kind: 'unknown', mayBeInit: true };
    const pending = (limit: number, wanted: number) => {
      const pod = { ...state({ a: 128 }, limit), ...declares([maybe, app('a')], 'kubelet-state') };
      return pendingMemory(pod, entry({ a: wanted, setup: 64 }), entry({ a: 128, setup: 64 }))?.pod;
    };

    test('the present pod limit shows whether an ended container is an init container', () => {
      expect(pending(128, 96)).toBe(96);
      expect(pending(128, 32)).toBe(64);
      expect(pending(192, 96)).toBe(160);
    });

    test('a container missing in the runtime counts as an exited init container if only that matches the pod limit', () => {
      const gone: DeclaredContainer = { name: 'setup', kind: 'unknown', state: 'declared', mayBeInit: true };
      const to = (limit: number) => {
        const pod = { ...state({ a: 150 }, limit), ...declares([app('a'), gone], 'kubelet-state') };
        return pendingMemory(pod, entry({ a: 110, setup: 40 }), entry({ a: 150, setup: 40 }))?.pod;
      };
      expect(to(190)).toBe(150);
      // The sum of what is admitted, and the maximum of what was applied: 150 is possible, and so is 110.
      expect(to(150)).toBeUndefined();
      expect(
        pendingMemory(
          { ...state({ a: 160 }, 160), ...declares([app('a'), gone], 'kubelet-state') },
          entry({ a: 110, setup: 40 }),
          entry({ a: 160, setup: 40 }),
        )?.pod,
      ).toBe(110);
    });

    test('KEP-1287: the pending pod limit is left out if it depends on whether an ended container is an init container', () => {
      // The sum of what was applied, and the maximum of what is admitted.
      expect(pending(192, 192)).toBeUndefined();
    });
  });

  test('KEP-1287: the pending pod limit of any resize is the limit that kubelet computes from the spec', () => {
    const size = fc.option(fc.integer({ min: 1, max: 64 }), { nil: undefined, freq: 12 });
    const one = fc.record({
      kind: fc.constantFrom('app' as const, 'sidecar' as const, 'init' as const),
      runs: fc.boolean(),
      from: size,
      to: size,
    });
    fc.assert(
      fc.property(fc.array(one, { maxLength: 5 }), fc.integer({ min: 1, max: 64 }), (others, from) => {
        const first = { kind: 'app' as const, runs: true, from, to: from + 1 };
        const inits = others.filter(({ kind }) => kind !== 'app');
        const all = [...inits, first, ...others.filter(({ kind }) => kind === 'app')].map((each, at) => ({
          ...each,
          name: `c${at}`,
        }));
        const limitOf = (pick: 'from' | 'to'): number => {
          const counted = all.map(({ kind, [pick]: amount = Infinity }): Counted => ({ kind, amount }));
          return kubeletLimit(counted, Infinity, Infinity);
        };
        const entryOf = (pick: 'from' | 'to') => entry(Object.fromEntries(all.map((each) => [each.name, each[pick]])));
        const running = all.flatMap(({ name, runs, from: limit }) =>
          runs && limit !== undefined ? [[name, limit]] : [],
        );
        const [now, then] = [limitOf('from'), limitOf('to')];
        const declared = all.map(
          ({ name, kind, runs }): DeclaredContainer =>
            runs
              ? { name, kind, state: 'running', id: `id-${name}` }
              : { name, kind, state: 'ended', id: `id-${name}` },
        );
        const pod = {
          ...state(Object.fromEntries(running) as Record<string, number>, now === Infinity ? 'max' : now),
          ...declares(declared),
        };
        const found = derivePendingResize(pod, {
          allocated: entryOf('to'),
          actuated: entryOf('from'),
          names: new Map(all.map(({ name }) => [`id-${name}`, name])),
        });
        expect(found?.pod.memory).toBe(now === Infinity || then === Infinity ? undefined : mi(then));
      }),
      cases(500),
    );
  });
});

describe('hasPendingMemory', () => {
  const [allocated, actuated] = [entry({ a: 64, setup: 32 }), entry({ a: 64, setup: 16 })];
  const declared = (setup: Partial<DeclaredContainer>): DeclaredPod => ({
    source: 'spec',
    containers: [{ name: 'setup', kind: 'init', state: 'ended', ...setup }],
    volumes: new Map(),
  });

  test('KEP-1287: a limit that kubelet admits for an init container that has ended is not pending', () => {
    expect(hasPendingMemory(allocated, actuated, declared({}))).toBe(false);
    expect(hasPendingMemory(allocated, actuated, declared({ kind: 'unknown', mayBeInit: true }))).toBe(false);
    expect(hasPendingMemory(entry({ a: 32, setup: 32 }), actuated, declared({}))).toBe(true);
  });

  test('limits of all other containers are pending, and of all containers while their kinds are unknown', () => {
    expect(hasPendingMemory(allocated, actuated, declared({ state: 'running' }))).toBe(true);
    expect(hasPendingMemory(allocated, actuated, declared({ kind: 'app' }))).toBe(true);
    expect(hasPendingMemory(allocated, actuated)).toBe(true);
    expect(hasPendingMemory(actuated, actuated)).toBe(false);
  });
});

describe('a call during a pending resize', () => {
  const target: PendingResize = { pod: { memory: mi(96) }, containers: new Map([['id-a', { memory: mi(64) }]]) };

  test('a container call is part of the pending resize if it has the admitted memory', () => {
    expect(matchesContainerUpdate(target, { id: 'id-a', memory: mi(64) }, mi(128))).toBe(true);
    expect(matchesContainerUpdate(target, { id: 'id-a' }, mi(128))).toBe(true);
    expect(matchesContainerUpdate(target, { id: 'id-a', memory: mi(128) }, mi(128))).toBe(false);
    expect(matchesContainerUpdate(target, { id: 'id-b', memory: mi(32) }, mi(32))).toBe(false);
    const cpuOnly: PendingResize = {
      pod: {},
      containers: new Map([['id-a', { cpu: { quota: 'max', period: PERIOD } }]]),
    };
    expect(matchesContainerUpdate(cpuOnly, { id: 'id-a', memory: mi(64) }, mi(64))).toBe(true);
    expect(matchesContainerUpdate(cpuOnly, { id: 'id-a', memory: mi(65) }, mi(64))).toBe(false);
  });

  test('a pod call is part of the pending resize if it has the current or the admitted limit', () => {
    const now = state({ a: 128 }, 128);
    expect([undefined, mi(128), mi(96), mi(64)].map((memory) => matchesPodUpdate(target, now, memory))).toEqual([
      true,
      true,
      true,
      false,
    ]);
  });

  test('a pending resize is complete if all containers have the admitted limits and the pod limit fits them', () => {
    const two: PendingResize = {
      pod: { memory: mi(96) },
      containers: new Map([
        ['id-a', { memory: mi(64) }],
        ['id-b', { memory: mi(32) }],
      ]),
    };
    expect(isMemoryComplete(state({ a: 64, b: 128 }, 256), two)).toBe(false);
    expect(isMemoryComplete(state({ a: 64, b: 32 }, 256), two)).toBe(true);
    expect(isMemoryComplete(state({ a: 64, b: 32 }, 80), two)).toBe(false);
    expect(isMemoryComplete(state({ a: 64, b: 32 }, 96), { ...two, pod: {} })).toBeUndefined();
  });

  test('a call lowers the pod to no less than its final limit, and not at all if that limit is higher', () => {
    const now = state({ a: 128 }, 192);
    expect(boundDecrease({ memory: mi(80) }, now, target)).toEqual({ memory: mi(96) });
    expect(boundDecrease({ memory: mi(100) }, now, target)).toEqual({ memory: mi(100) });
    expect(boundDecrease({ memory: mi(80) }, now, { pod: { memory: mi(192) }, containers: new Map() })).toEqual({});
    expect(boundDecrease({ memory: mi(80) }, now, { pod: { memory: mi(500) }, containers: new Map() })).toEqual({});
    expect(boundDecrease({ memory: mi(80) }, now, { pod: {}, containers: new Map() })).toEqual({ memory: mi(80) });
    expect(boundDecrease({ memory: mi(500) }, now, target)).toEqual({ memory: mi(500) });
    const cpu = (quota: number) => ({ quota: microseconds(quota), period: PERIOD });
    const busy = { ...now, cpu: cpu(50_000) };
    const to = (quota: number): PendingResize => ({ pod: { cpu: cpu(quota) }, containers: new Map() });
    expect(boundDecrease({ cpu: cpu(20_000) }, busy, to(30_000))).toEqual({ cpu: cpu(30_000) });
    expect(boundDecrease({ cpu: cpu(20_000) }, busy, to(60_000))).toEqual({});
    expect(boundDecrease({ cpu: cpu(20_000) }, busy, to(10_000))).toEqual({ cpu: cpu(20_000) });
  });

  describe('a raise of the pod during a pending resize', () => {
    const now = state({ a: 64 }, 64);
    const cpu = (quota: number) => ({ quota: microseconds(quota), period: PERIOD });
    const busy = { ...now, cpu: cpu(50_000) };
    const containers = new Map([['id-a', { memory: mi(96), cpu: cpu(40_000) }]]);
    const written = { memory: true, cpu: true };
    const asked = { id: 'id-a', memory: mi(96), cpu: cpu(40_000) };
    const to = (quota: number): PendingResize => ({ pod: { cpu: cpu(quota) }, containers });
    const podMemory = (memory: number): PendingResize => ({ pod: { memory: mi(memory) }, containers });

    test('a call raises the pod to at most its final limit, and not at all if kubelet has written that limit', () => {
      expect(boundIncrease({ memory: mi(112) }, now, podMemory(96), asked)).toEqual({ memory: mi(96) });
      expect(boundIncrease({ memory: mi(80) }, now, podMemory(96), asked)).toEqual({ memory: mi(80) });
      expect(boundIncrease({ memory: mi(112) }, now, { pod: {}, containers }, asked)).toEqual({ memory: mi(112) });
      expect(boundIncrease({ memory: mi(112) }, now, { pod: {}, containers, written }, asked)).toEqual({});
      expect(boundIncrease({ memory: mi(112) }, now, podMemory(64), asked)).toEqual({});
      const lower = { memory: mi(32) };
      expect(boundIncrease(lower, now, { ...podMemory(96), written }, asked)).toEqual(lower);
      expect(boundIncrease({ cpu: cpu(80_000) }, busy, to(70_000), asked)).toEqual({ cpu: cpu(70_000) });
      expect(boundIncrease({ cpu: cpu(80_000) }, busy, to(50_000), asked)).toEqual({});
      expect(boundIncrease({ cpu: cpu(80_000) }, busy, { pod: {}, containers, written }, asked)).toEqual({});
      const less = { cpu: cpu(20_000) };
      expect(boundIncrease(less, busy, { ...to(70_000), written }, asked)).toEqual(less);
    });

    test('a call raises the pod for a container limit that kubelet has not admitted, each resource separately', () => {
      const limits = { memory: mi(112), cpu: cpu(80_000) };
      const pending: PendingResize = { pod: { memory: mi(80), cpu: cpu(60_000) }, containers, written };
      expect(boundIncrease(limits, busy, pending, asked)).toEqual({});
      expect(boundIncrease(limits, busy, pending, { ...asked, cpu: cpu(45_000) })).toEqual({ cpu: cpu(80_000) });
      expect(boundIncrease(limits, busy, pending, { ...asked, memory: mi(97) })).toEqual({ memory: mi(112) });
      const onlyMemory = { ...pending, containers: new Map([['id-a', { memory: mi(96) }]]) };
      expect(boundIncrease(limits, busy, onlyMemory, asked)).toEqual({ cpu: cpu(80_000) });
      expect(boundIncrease(limits, busy, { ...pending, containers: new Map() }, asked)).toEqual(limits);
    });
  });

  test('a pod CPU limit counts as written by kubelet if it matches a possible sum, also rounded up to percents by systemd', () => {
    const setup: DeclaredContainer = {
      name: 'setup',
      kind: 'unknown',
      mayBeInit: true,
      state: 'ended',
      id: 'id-setup',
    };
    const entryOf = (a: number): PodEntry => ({
      containers: new Map([
        ['setup', { milliCpu: 200 }],
        ['a', { milliCpu: a }],
      ]),
      pod: undefined,
      isComplete: true,
    });
    const written = (quota: number, inPercents?: true) => {
      const declared: DeclaredPod = {
        source: 'kubelet-state',
        containers: [setup, { name: 'a', kind: 'app', state: 'running', id: 'id-a' }],
        volumes: new Map(),
      };
      const cpu = { quota: microseconds(quota), period: PERIOD };
      const now = { ...state({ a: 64 }, 'max'), cpu, declared, ...(inPercents && { inPercents }) };
      return derivePendingResize(now, { allocated: entryOf(605), actuated: entryOf(400), names })?.written?.cpu;
    };
    expect([60_500, 80_500, 60_000, 61_000].map((quota) => written(quota))).toEqual([true, true, false, false]);
    expect([61_000, 62_000].map((quota) => written(quota, true))).toEqual([true, false]);
  });
});

test('a pending resize with a tight pod limit keeps its values after each call of kubelet, and ends after the last one', () => {
  const sizes = fc.array(fc.record({ from: fc.integer({ min: 1, max: 64 }), to: fc.integer({ min: 1, max: 64 }) }), {
    minLength: 1,
    maxLength: 3,
  });
  fc.assert(
    fc.property(sizes, (containers) => {
      const named = (pick: 'from' | 'to', done = containers.length) =>
        Object.fromEntries(
          containers.map((each, at) => [['a', 'b', 'c'][at]!, each[at < done ? pick : 'from']] as const),
        );
      const sum = (pick: 'from' | 'to') => containers.reduce((all, each) => all + each[pick], 0);
      const [start, end] = [sum('from'), sum('to')];
      const allocated = entry(named('to'));
      let before: { allocated: PodEntry; limits: PendingResize['pod'] } | undefined;
      for (let done = 0; done < containers.length; done += 1) {
        const now = state(named('to', done), Math.max(start, end));
        const at = done === 0 ? state(named('from'), start) : now;
        const found = derivePendingResize(at, { allocated, actuated: entry(named('to', done)), names, before });
        if (found === undefined) continue;
        before = { allocated, limits: found.pod };
        expect(found.pod.memory).toBe(mi(end));
        expect(stateAfterPending(at, found)).toEqual(state(named('to'), end));
      }
      expect(
        derivePendingResize(state(named('to'), end), { allocated, actuated: allocated, names, before }),
      ).toBeUndefined();
    }),
    cases(500),
  );
});
