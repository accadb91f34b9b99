import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { EntryLimits, PodEntry } from '../../../src/kubelet/checkpoint.ts';
import {
  type PendingResize,
  matchesContainerUpdate,
  matchesPodUpdate,
  derivePendingResize,
  stateAfterPending,
  isMemoryComplete,
  boundDecrease,
} from '../../../src/resize/foresight/pending-resize.ts';
import { type Bytes, type Limit, bytes, cpuWeight, microseconds } from '../../../src/core/quantities/index.ts';
import { cases } from '../../support/property-cases.ts';
import { MiB, NO_OVERHEAD, PERIOD } from '../../support/resize/pods.ts';
import type { PodState } from '../../../src/sandbox/pod-state.ts';

const mi = (mebibytes: number): Bytes => bytes(mebibytes * MiB);

const entry = (memory: Readonly<Record<string, number | undefined>>, more: Partial<PodEntry> = {}): PodEntry => ({
  containers: new Map(
    Object.entries(memory).map(([name, mebibytes]): [string, EntryLimits] => [
      name,
      mebibytes === undefined ? {} : { memory: mi(mebibytes) },
    ]),
  ),
  pod: undefined,
  isComplete: true,
  ...more,
});

/** Containers `id-a`, `id-b` with these limits, and the pod's. */
const state = (memory: Readonly<Record<string, number>>, pod: number | 'max'): PodState => ({
  memory: pod === 'max' ? 'max' : mi(pod),
  cpu: { quota: 'max', period: PERIOD },
  weight: cpuWeight(39),
  overhead: NO_OVERHEAD,
  containers: Object.entries(memory).map(([name, mebibytes]) => ({
    id: `id-${name}`,
    memory: mi(mebibytes),
    cpu: { quota: 'max', period: PERIOD },
  })),
  volumes: [],
});
const names = new Map(['a', 'b', 'c'].map((name) => [`id-${name}`, name]));

/** In mebibytes. */
function foreseen(
  now: PodState,
  allocated: PodEntry | undefined,
  actuated?: PodEntry,
): { pod: number | undefined; containers: Record<string, number | undefined> } | undefined {
  const found = derivePendingResize(now, { allocated, actuated, names });
  const inMebi = (limit: Limit<Bytes> | undefined): number | undefined =>
    limit === undefined ? undefined : Number(limit) / MiB;
  return (
    found && {
      pod: inMebi(found.pod.memory),
      containers: Object.fromEntries([...found.containers].map(([id, { memory }]) => [id, inMebi(memory)])),
    }
  );
}

describe('what is under way', () => {
  test('what is admitted and not carried out', () => {
    expect(foreseen(state({ a: 192 }, 192), entry({ a: 64 }), entry({ a: 192 }))).toEqual({
      pod: 64,
      containers: { 'id-a': 64 },
    });
  });

  test('one container of two; the pod is their sum', () => {
    const found = foreseen(state({ a: 128, b: 64 }, 192), entry({ a: 32, b: 64 }), entry({ a: 128, b: 64 }));
    expect(found).toEqual({ pod: 96, containers: { 'id-a': 32 } });
  });

  test('nothing: no record, all carried out, or somebody else has changed the kernel’s', () => {
    expect(foreseen(state({ a: 192 }, 192), undefined)).toBeUndefined();
    expect(foreseen(state({ a: 64 }, 64), entry({ a: 64 }), entry({ a: 64 }))).toBeUndefined();
    expect(foreseen(state({ a: 128 }, 128), entry({ a: 64 }), entry({ a: 64 }))).toBeUndefined();
  });

  test('without a record of what was carried out the kernel tells', () => {
    expect(foreseen(state({ a: 192 }, 192), entry({ a: 64 }))).toEqual({ pod: 64, containers: { 'id-a': 64 } });
  });

  test('a container without limit, one that does not run, and one that nobody knows', () => {
    expect(foreseen(state({ a: 192 }, 'max'), entry({ a: 64, b: undefined }), entry({ a: 192, b: undefined }))).toEqual(
      {
        pod: undefined,
        containers: { 'id-a': 64 },
      },
    );
    // b is yet to start, and the pod has room for it.
    expect(foreseen(state({ a: 192 }, 256), entry({ a: 64, b: 64 }), entry({ a: 192, b: 64 }))).toEqual({
      pod: 128,
      containers: { 'id-a': 64 },
    });
    expect(foreseen(state({ a: 192, x: 8 }, 200), entry({ a: 64 }), entry({ a: 192 }))).toEqual({
      pod: undefined,
      containers: { 'id-a': 64 },
    });
  });

  test('a pod limit of another making: a large init container’s, or half a record', () => {
    const now = state({ a: 192 }, 512);
    expect(foreseen(now, entry({ a: 64 }), entry({ a: 192 }))?.pod).toBeUndefined();
    const torn = entry({ a: 64 }, { isComplete: false });
    expect(foreseen(state({ a: 192 }, 192), torn, entry({ a: 192 }))?.pod).toBeUndefined();
  });

  test('limits of the pod itself, alone or with containers, and overhead', () => {
    const level = (mebibytes: number) => ({ pod: { memory: mi(mebibytes) } });
    const now = state({ a: 64 }, 256);
    expect(
      foreseen(now, entry({ a: 64, b: undefined }, level(128)), entry({ a: 64, b: undefined }, level(256))),
    ).toEqual({
      pod: 128,
      containers: {},
    });
    const more = { ...state({ a: 64 }, 266), overhead: { ...NO_OVERHEAD, memory: mi(10) } };
    expect(foreseen(more, entry({ a: 32 }, level(128)), entry({ a: 64 }, level(256)))).toEqual({
      pod: 138,
      containers: { 'id-a': 32 },
    });
  });

  test('CPU, as kubelet counts it: quota of milliCPU, at least 1 ms', () => {
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

  test('in the middle, when the pod’s limit goes with its containers’', () => {
    const [allocated, actuated] = [entry({ a: 64, b: 48 }), entry({ a: 128, b: 128 })];
    expect(foreseen(state({ a: 64, b: 128 }, 192), allocated, actuated)?.pod).toBe(112);
  });

  test('in the middle, when the pod’s limit is made of neither: as it was foreseen at the start', () => {
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
    // Something else has been admitted since.
    expect(
      derivePendingResize(middle, { ...then, allocated: entry({ a: 64, b: 16 }), before })?.pod.memory,
    ).toBeUndefined();
  });
});

describe('a call', () => {
  const target: PendingResize = { pod: { memory: mi(96) }, containers: new Map([['id-a', { memory: mi(64) }]]) };

  test('of a container is a part of it with the memory that was admitted', () => {
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

  test('of the pod is one with its present limit or the admitted one', () => {
    const now = state({ a: 128 }, 128);
    expect([undefined, mi(128), mi(96), mi(64)].map((memory) => matchesPodUpdate(target, now, memory))).toEqual([
      true,
      true,
      true,
      false,
    ]);
  });

  test('is the last one when all containers have what was admitted, and the pod room for it', () => {
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

  test('lowers the pod no further than where it is led to, and not on the way up', () => {
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

test('kubelet’s calls in their order, for any resize of a pod whose limit is its containers’: foreseen to the end, and then nothing', () => {
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
