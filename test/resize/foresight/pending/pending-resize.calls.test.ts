import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { PodEntry } from '../../../../src/kubelet/checkpoint.ts';
import {
  type PendingResize,
  matchesContainerUpdate,
  matchesPodUpdate,
  derivePendingResize,
  stateAfterPending,
  hasPendingMemory,
  isMemoryComplete,
  boundDecrease,
} from '../../../../src/resize/foresight/pending/pending-resize.ts';
import { microseconds } from '../../../../src/core/quantities/index.ts';
import { cases } from '../../../support/property-cases.ts';
import { PERIOD } from '../../../support/resize/pods.ts';
import type { DeclaredContainer, DeclaredPod } from '../../../../src/sandbox/index.ts';
import { entry, mi, names, state } from '../../../support/resize/pending-pods.ts';

describe('hasPendingMemory', () => {
  const [allocated, actuated] = [entry({ a: 64, setup: 32 }), entry({ a: 64, setup: 16 })];
  const declared = (setup: Partial<DeclaredContainer>): DeclaredPod => ({
    source: 'spec',
    containers: [{ name: 'setup', kind: 'init', state: 'ended', ...setup }],
    volumes: new Map(),
  });

  test('an init container that has ended does not count: kubelet never applies what it has admitted for it', () => {
    expect(hasPendingMemory(allocated, actuated, declared({}))).toBe(false);
    expect(hasPendingMemory(allocated, actuated, declared({ kind: 'unknown', mayBeInit: true }))).toBe(false);
    expect(hasPendingMemory(entry({ a: 32, setup: 32 }), actuated, declared({}))).toBe(true);
  });

  test('all other containers count, and all of them while the kinds are not known', () => {
    expect(hasPendingMemory(allocated, actuated, declared({ state: 'running' }))).toBe(true);
    expect(hasPendingMemory(allocated, actuated, declared({ kind: 'app' }))).toBe(true);
    expect(hasPendingMemory(allocated, actuated)).toBe(true);
    expect(hasPendingMemory(actuated, actuated)).toBe(false);
  });
});

describe('a call during a pending resize', () => {
  const target: PendingResize = { pod: { memory: mi(96) }, containers: new Map([['id-a', { memory: mi(64) }]]) };

  test('of a container is part of the resize when it has the admitted memory', () => {
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

  test('of the pod is part of the resize when it has the current or the admitted limit', () => {
    const now = state({ a: 128 }, 128);
    expect([undefined, mi(128), mi(96), mi(64)].map((memory) => matchesPodUpdate(target, now, memory))).toEqual([
      true,
      true,
      true,
      false,
    ]);
  });

  test('is the last one when all containers have the admitted limits and the pod limit fits them', () => {
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

  test('lowers the pod no further than its final limit, and not at all when that is higher', () => {
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
});

test('for any resize of a pod with a tight limit, each call of kubelet leads to the same pending values, and the last one to none', () => {
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
