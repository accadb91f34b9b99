import fc from 'fast-check';
import { type Bytes, bytes } from '../../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../../src/core/quantities/sizes.ts';
import type { PodEntry } from '../../../../src/kubelet/checkpoint.ts';
import { fromKubeletState, fromRuntime, fromSpec } from '../../../../src/sandbox/pods/declare-pod.ts';
import type { ContainerKind, DeclaredPod } from '../../../../src/sandbox/pods/declared-pod.ts';
import type { SpecContainer } from '../../../../src/sandbox/pods/pod-spec.ts';
import type { PodState } from '../../../../src/sandbox/pods/pod-state.ts';
import type { NewestContainer, StoredContainer } from '../../../../src/sandbox/pods/runtime-containers.ts';
import { kubeletLimit } from '../declared-pods.ts';
import { NO_OVERHEAD, PERIOD } from '../pods.ts';

/** Random pods as kubelet knows them, and what each source shows: kubelet knows more of a pod than the shim. */

/** A container as kubelet knows it. */
export interface KnownContainer {
  readonly name: string;
  readonly kind: ContainerKind;
  readonly limit: Bytes;
  readonly state: 'declared' | 'created' | 'running' | 'ended' | 'failed';
}

export const size = fc.integer({ min: 1, max: 64 }).map((n) => bytes(n * 16 * MiB));
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

/** A pod whose init containers ended. kubelet created the app containers in order, up to the first pulled one. */
export const knownPods = fc
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
export const limitOf = (containers: readonly KnownContainer[]): number =>
  kubeletLimit(
    containers.map(({ kind, limit }) => ({ kind, amount: limit })),
    Infinity,
    Infinity,
  );

export type View = 'spec' | '1.36' | '1.35' | 'runtime';
export type KnownPod = typeof knownPods extends fc.Arbitrary<infer Value> ? Value : never;

/** Returns the shim's view of a pod: its spec, the files of a release of kubelet, or only the runtime's containers. */
function seenBy(view: View, { containers, ephemeral }: KnownPod): DeclaredPod {
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
  if (view === 'spec') return fromSpec(specOf([...containers, ...debuggers]), undefined, byName);
  if (view === 'runtime') return fromRuntime(byName, new Map(stored));
  return fromKubeletState(entryOf(view, containers), byName, new Map(stored));
}

/** Returns the entry in the files of this kubelet release for the containers of a pod. */
export function entryOf(view: '1.36' | '1.35', containers: readonly KnownContainer[]): PodEntry {
  const listed = containers.filter(({ kind }) => kind !== 'init' || view === '1.36');
  return {
    containers: new Map(listed.map(({ name, limit }) => [name, { memory: limit }])),
    pod: undefined,
    isComplete: true,
  };
}

const specOf = (containers: readonly KnownContainer[]): Parameters<typeof fromSpec>[0] => ({
  containers: containers.map(({ name, kind, limit }): SpecContainer => {
    if (kind === 'unknown') throw new Error(`the kind of ${name} is not known`);
    const limits = limit === 0 ? {} : { memory: limit };
    return { name, kind, limits, requests: {}, resizePolicy: { cpu: 'NotRequired', memory: 'NotRequired' } };
  }),
  limits: {},
  requests: {},
  qosClass: undefined,
  priority: 0,
  volumes: new Map(),
});

/** Returns the state of a pod whose running containers have the limits that kubelet knows. */
export function stateOf(view: View, pod: KnownPod): PodState {
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
