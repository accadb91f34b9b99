import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { PodEntry } from '../../../src/kubelet/checkpoint.ts';
import {
  type PendingResize,
  matchesContainerUpdate,
  matchesPodUpdate,
  derivePendingResize,
  stateAfterPending,
  hasPendingMemory,
  isMemoryComplete,
  boundDecrease,
  boundIncrease,
} from '../../../src/sandbox/foresight/pending-resize.ts';
import { microseconds } from '../../../src/core/quantities/numbers.ts';
import { cases } from '../../support/property-cases.ts';
import { PERIOD } from '../../support/resize/pods.ts';
import type { DeclaredContainer, DeclaredPod } from '../../../src/sandbox/pods/declared-pod.ts';
import { entry, names, state } from '../../support/resize/pending-pods.ts';
import { mi } from '../../support/quantities/mebibytes.ts';

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
