import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type Bytes, MiB, bytes } from '../../../src/core/quantities/index.ts';
import type { PodEntry } from '../../../src/kubelet/index.ts';
import { podLimitsFor } from '../../../src/resize/plan/pod-limits.ts';
import { fromKubeletState } from '../../../src/sandbox/declared/from-kubelet-state.ts';
import { fromRuntime } from '../../../src/sandbox/declared/from-runtime.ts';
import type { NewestContainer } from '../../../src/sandbox/declared/newest-containers.ts';
import type { StoredContainer } from '../../../src/sandbox/declared/stored-containers.ts';
import type { ContainerKind, DeclaredPod, PodState } from '../../../src/sandbox/index.ts';
import { cases } from '../../support/property-cases.ts';
import { kubeletLimit } from '../../support/resize/declared-pods.ts';
import { NO_OVERHEAD, PERIOD } from '../../support/resize/pods.ts';

// What holds without the pod's spec, on 30,000 random pods: kubelet knows more of a pod than the shim sees.

/** A container as kubelet knows it. */
interface KnownContainer {
  readonly name: string;
  readonly kind: ContainerKind;
  readonly limit: Bytes;
  readonly state: 'declared' | 'created' | 'running' | 'ended' | 'failed';
}

const size = fc.integer({ min: 1, max: 64 }).map((n) => bytes(n * 16 * MiB));
const inits = fc.array(fc.record({ kind: fc.constantFrom('init' as const, 'sidecar' as const), limit: size }), {
  maxLength: 3,
});
const apps = fc.array(
  fc.record({
    kind: fc.constant('app' as const),
    limit: size,
    state: fc.constantFrom<KnownContainer['state'][]>('running', 'running', 'ended', 'failed', 'created', 'declared'),
  }),
  { minLength: 1, maxLength: 4 },
);

/** A pod whose init containers have ended: kubelet made the app containers in their order, up to the first that it pulls. */
const pods = fc
  .record({ inits, apps, slack: fc.constantFrom(0, 0, 64 * MiB), ephemeral: fc.boolean() })
  .map(({ inits: before, apps: after, slack, ephemeral }) => {
    const containers: KnownContainer[] = [
      ...before.map((one, at) => {
        const state = one.kind === 'init' ? ('ended' as const) : ('running' as const);
        return { ...one, name: `i${at}`, state };
      }),
      ...after.map((one, at) => ({ ...one, name: `a${at}`, state: at === 0 ? ('running' as const) : one.state })),
    ];
    return { containers, ephemeral, podLimit: bytes(limitOf(containers) + slack) };
  });

/** The pod limit that kubelet sets. */
const limitOf = (containers: readonly KnownContainer[]): number =>
  kubeletLimit(
    containers.map(({ kind, limit }) => ({ kind, amount: limit })),
    Infinity,
    Infinity,
  );

type View = '1.36' | '1.35' | 'runtime';
type Pod = typeof pods extends fc.Arbitrary<infer Value> ? Value : never;

/** What the shim sees of a pod: what kubelet of some release has written down, or the runtime's containers alone. */
function seenBy(view: View, { containers, ephemeral }: Pod): DeclaredPod {
  const debuggers: KnownContainer[] = ephemeral
    ? [{ name: 'debugger', kind: 'ephemeral', limit: bytes(0), state: 'running' }]
    : [];
  const created = [...containers, ...debuggers].filter(({ state }) => state !== 'declared');
  const newest = created.map(({ name, state }, at): NewestContainer => {
    const phase = state === 'failed' || state === 'declared' ? 'ended' : state;
    return { id: name, name, phase, createdAt: BigInt(at), labels: {}, annotations: {} };
  });
  const stored = created.map(({ name, state, limit }): [string, StoredContainer] => {
    return [name, { limits: limit === 0 ? {} : { memory: limit }, exitCode: state === 'failed' ? 1 : 0 }];
  });
  const byName = new Map(newest.map((one) => [one.name, one]));
  if (view === 'runtime') return fromRuntime(byName, new Map(stored));
  const listed = containers.filter(({ kind }) => kind !== 'init' || view === '1.36');
  const entry: PodEntry = {
    containers: new Map(listed.map(({ name, limit }) => [name, { memory: limit }])),
    pod: undefined,
    isComplete: true,
  };
  return fromKubeletState(entry, byName, new Map(stored));
}

function stateOf(view: View, pod: Pod): PodState {
  const cpu = { quota: 'max' as const, period: PERIOD };
  const running = pod.containers.filter(({ state }) => state === 'running');
  const debuggers = pod.ephemeral ? [{ id: 'debugger', memory: 'max' as const, cpu }] : [];
  return {
    memory: pod.podLimit,
    cpu,
    weight: undefined,
    overhead: NO_OVERHEAD,
    containers: [...running.map(({ name, limit }) => ({ id: name, memory: limit, cpu })), ...debuggers],
    volumes: [],
    declared: seenBy(view, pod),
  };
}

const sumOf = (containers: readonly KnownContainer[]): number => containers.reduce((sum, { limit }) => sum + limit, 0);

test.each(['1.36', '1.35', 'runtime'] as const)(
  'as %s tells: no update takes the pod limit from its containers',
  (view) => {
    const seen = new Set<string>();
    fc.assert(
      fc.property(pods, size, (pod, to) => {
        // The first app container always runs.
        const then = pod.containers.map((one) => (one.name === 'a0' ? { ...one, limit: to } : one));
        const { memory = pod.podLimit } = podLimitsFor(stateOf(view, pod), [{ id: 'a0', memory: to }]);
        if (memory === 'max') throw new Error('the limit of the pod is gone');
        // The runtime does not tell of what was not created, and may not tell an init container from one that is done.
        const isSeen = ({ state }: KnownContainer): boolean =>
          view !== 'runtime' || !['declared', 'ended'].includes(state);
        if (memory < pod.podLimit) expect(memory, 'lowered').toBeGreaterThanOrEqual(limitOf(then.filter(isSeen)));
        const counted = then.filter((one) => one.kind !== 'init' && isSeen(one));
        expect(memory, 'the sum').toBeGreaterThanOrEqual(sumOf(counted));
        seen.add(memory < pod.podLimit ? 'lowered' : memory > pod.podLimit ? 'raised' : 'as it was');
      }),
      cases(10_000),
    );
    expect([...seen].sort()).toEqual(['as it was', 'lowered', 'raised']);
  },
);
