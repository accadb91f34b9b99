import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { PodEntry } from '../../../src/kubelet/checkpoint.ts';
import { derivePendingResize } from '../../../src/sandbox/foresight/pending-resize.ts';
import { microseconds } from '../../../src/core/quantities/numbers.ts';
import { cases } from '../../support/property-cases.ts';
import { type Counted, kubeletLimit } from '../../support/resize/declared-pods.ts';
import { NO_OVERHEAD, PERIOD } from '../../support/resize/pods.ts';
import type { PodState } from '../../../src/sandbox/pods/pod-state.ts';
import type { DeclaredContainer, DeclaredPod } from '../../../src/sandbox/pods/declared-pod.ts';
import { entry, names, pendingMemory, state } from '../../support/resize/pending-pods.ts';
import { mi } from '../../support/quantities/mebibytes.ts';

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
    // kubelet has admitted other values since.
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

    test('a container missing in the runtime counts as an ended init container if the pod limit shows it', () => {
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
