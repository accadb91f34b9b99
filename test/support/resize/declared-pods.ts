import fc from 'fast-check';
import { type Bytes, bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { Amounts, ContainerKind, DeclaredContainer, DeclaredPod } from '../../../src/sandbox/pods/declared-pod.ts';
import type { LiveContainer } from '../../../src/sandbox/pods/pod-state.ts';

/** Random declarations of pods: what kind each container is of, which do not run, and limits of the pod level. */

/** The spec of a pod whose running containers are known: by their order, the first one is always an app container. */
export interface Declaration {
  readonly kinds: readonly ContainerKind[];
  readonly idle: readonly IdleContainer[];
  readonly level: Amounts | undefined;
}

interface IdleContainer {
  readonly kind: ContainerKind;
  readonly state: 'declared' | 'created' | 'ended';
  readonly limits: Amounts;
  /** The position among the running containers. */
  readonly place: number;
}

const size: fc.Arbitrary<Bytes> = fc.oneof(
  { weight: 3, arbitrary: fc.integer({ min: 1, max: 64 }).map((n) => bytes(n * 16 * MiB)) },
  { weight: 1, arbitrary: fc.integer({ min: 1, max: 500 }).map((n) => bytes(n * 1_000_001)) },
);

/** A limit of each resource, or none. Also below the kernel's minimum quota. */
const amounts: fc.Arbitrary<Amounts> = fc
  .record({
    memory: fc.option(size, { nil: undefined, freq: 8 }),
    milliCpu: fc.option(fc.integer({ min: 1, max: 1000 }), { nil: undefined, freq: 8 }),
  })
  .map(({ memory, milliCpu }) => ({ ...(memory && { memory }), ...(milliCpu && { milliCpu }) }));

const kind = fc.oneof(
  { weight: 6, arbitrary: fc.constant('app' as const) },
  { weight: 2, arbitrary: fc.constantFrom('sidecar' as const, 'init' as const) },
  { weight: 1, arbitrary: fc.constant('ephemeral' as const) },
);

export const declaration: fc.Arbitrary<Declaration> = fc.record({
  kinds: fc.array(kind, { minLength: 10, maxLength: 10 }),
  idle: fc.array(
    fc.record({
      kind,
      state: fc.constantFrom('declared' as const, 'created' as const, 'ended' as const),
      limits: amounts,
      place: fc.nat(9),
    }),
    { maxLength: 4 },
  ),
  level: fc.option(amounts, { nil: undefined, freq: 8 }),
});

/** The pod of a spec: init containers and sidecars in any order, then app containers, then ephemeral ones. */
export function declaredPod(running: readonly LiveContainer[], { kinds, idle, level }: Declaration): DeclaredPod {
  const live = running.map(({ id }, place) => {
    const kind = place === 0 ? 'app' : kinds[place]!;
    // For a running container, the limits in the kernel count, not the declared ones.
    const one: DeclaredContainer = { name: id, id, kind, state: 'running', limits: {} };
    return { place, one };
  });
  const others = idle.map(({ place, ...idleOne }, at) => {
    const name = `idle${at}`;
    const one: DeclaredContainer = { ...idleOne, name, ...(idleOne.state !== 'declared' && { id: name }) };
    return { place, one };
  });
  const inOrder = [...live, ...others].sort((a, b) => a.place - b.place).map(({ one }) => one);
  const of = (...wanted: readonly ContainerKind[]): DeclaredContainer[] =>
    inOrder.filter((one) => wanted.includes(one.kind));
  return {
    source: 'spec',
    containers: [...of('init', 'sidecar'), ...of('app'), ...of('ephemeral')],
    ...(level && { limits: level }),
    volumes: new Map(),
  };
}

/** The contribution of a container to the limit of its pod. */
export interface Counted {
  readonly kind: ContainerKind;
  /** `unlimited` without a limit. */
  readonly amount: number;
}

/**
 * The limit of a pod as kubelet computes it, line by line (k8s.io/component-helpers/resource, AggregateContainerLimits,
 * and ResourceConfigForPod in pkg/kubelet/cm/helpers_linux.go); `unlimited` where kubelet sets none. Overhead is left
 * out.
 */
export function kubeletLimit(containers: readonly Counted[], level: number, unlimited: number): number {
  if (level !== unlimited) return level;
  const amountOf = ({ amount }: Counted): number => (amount === unlimited ? 0 : amount);
  const isZero: boolean[] = [];
  let limits = 0;
  for (const one of containers.filter(({ kind: is }) => is === 'app' || is === 'unknown')) {
    isZero.push(amountOf(one) === 0);
    limits += amountOf(one);
  }
  let [restartable, init] = [0, 0];
  for (const one of containers.filter(({ kind: is }) => is === 'init' || is === 'sidecar')) {
    let candidate = amountOf(one) + restartable;
    if (one.kind === 'sidecar') {
      limits += amountOf(one);
      restartable += amountOf(one);
      candidate = restartable;
    }
    isZero.push(candidate === 0);
    init = Math.max(init, candidate);
  }
  return isZero.includes(true) ? unlimited : Math.max(limits, init);
}
