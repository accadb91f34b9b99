import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { MemoryUse } from '../../../src/cgroups/memory-use.ts';
import { type Bytes, bytes, type Limit } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { isBelowUnreclaimable } from '../../../src/sandbox/admission/memory-in-use.ts';
import { podLimitsFor } from '../../../src/sandbox/plan/pod-limits.ts';
import type { PodTarget } from '../../../src/sandbox/plan/step.ts';
import type { ContainerLimits, PodState } from '../../../src/sandbox/pods/pod-state.ts';
import { cases } from '../../support/property-cases.ts';
import { Case, derived, expectWithin, undone } from '../../support/resize/plan-cases.ts';
import { inPages } from '../../support/resize/pods.ts';

// The rules of docs/resize.md about memory in use, on thousands of random pods.

/** A resize, with the memory that cannot be reclaimed in each container and in the whole pod. */
interface InUse {
  readonly state: PodState;
  readonly target: PodTarget;
  readonly containers: ReadonlyMap<string, Bytes>;
  readonly pod: Bytes;
  readonly [fc.toStringMethod]: () => string;
}

/** The percentage of its limit that a container uses, or exactly the requested limit, which is the border case. */
const percent = fc.oneof(fc.integer({ min: 0, max: 100 }), fc.constant('as requested' as const));

const inUse: fc.Arbitrary<InUse> = fc
  .record({
    resize: derived,
    each: fc.array(percent, { minLength: 10, maxLength: 10 }),
    rest: fc.integer({ min: 0, max: 100 }),
  })
  .map(({ resize: { state, target }, each, rest }) => {
    const wanted = state.containers.map(({ id, memory }, index) => {
      const part = each[index]!;
      const asked = target.containers?.find((change) => change.id === id)?.memory ?? memory;
      return part === 'as requested' ? Math.min(finite(memory), finite(asked)) : (finite(memory) * part) / 100;
    });
    const sum = wanted.reduce((total, amount) => total + amount, 0);
    const most = finite(state.memory);
    // An over-committed pod uses no more than its limit either.
    const used = wanted.map((amount) => pages(amount * Math.min(1, most / Math.max(1, sum))));
    const ofContainers = used.reduce((total, amount) => total + amount, 0);
    const pod = pages(ofContainers + ((most - ofContainers) * rest) / 100);
    const print = (): string =>
      `${new Case(state, target).print()}in use: ${pod}, of the containers ${used.join(', ')}`;
    const containers = new Map(state.containers.map(({ id }, index) => [id, used[index]!]));
    return { state, target, containers, pod, [fc.toStringMethod]: print };
  });

const pages = (amount: number): Bytes => inPages(bytes(Math.floor(amount))) as Bytes;
const finite = (limit: Limit<Bytes>): number => (limit === 'max' ? 2048 * MiB : limit);

const use = (unreclaimable: Bytes): MemoryUse => ({
  current: unreclaimable,
  unreclaimable,
  anon: unreclaimable,
  shmem: bytes(0),
  unevictable: bytes(0),
  file: bytes(0),
  swappable: bytes(0),
  swapExcess: bytes(0),
  kernelUnreclaimable: bytes(0),
  oomKills: 0,
});

function isAdmitted({ id, memory }: ContainerLimits, { state, containers }: InUse): boolean {
  const now = state.containers.find((container) => container.id === id)!.memory;
  return memory === undefined || !isBelowUnreclaimable(memory, now, use(containers.get(id)!));
}

/** Returns the resize without changes that usage forbids: those of containers, and derived pod decreases. */
function admitted(found: InUse): Case {
  const { state, target, pod } = found;
  const containers = (target.containers ?? []).filter((change) => isAdmitted(change, found));
  const { memory = state.memory, ...cpu } = podLimitsFor(state, containers);
  const isForbidden = isBelowUnreclaimable(memory, state.memory, use(pod));
  const limits = { ...cpu, ...(!isForbidden && { memory }) };
  return new Case(state, { ...limits, containers, call: 'none', volumes: target.volumes });
}

describe('unreclaimable memory', () => {
  test('KEP-1287: no limit is below unreclaimable memory after any step of a resize or rollback, and sums stay within the pod limit', () => {
    fc.assert(
      fc.property(inUse, (found) => {
        const { states, steps, end } = admitted(found);
        for (const [at, state] of [...states, ...undone(end, steps)].entries()) {
          const tooLow = [{ id: 'pod', memory: state.memory }, ...state.containers].find(
            ({ id, memory }) => memory !== 'max' && memory < (found.containers.get(id) ?? found.pod),
          );
          if (tooLow !== undefined)
            expect.fail(`the limit of ${tooLow.id} is below its unreclaimable memory after ${at} steps`);
        }
        expectWithin(states, 'derived');
      }),
      cases(5000),
    );
  });

  test('KEP-1287: a decrease is rejected exactly if the new limit is at or below the unreclaimable memory of the container', () => {
    fc.assert(
      fc.property(inUse, (found) => {
        for (const change of found.target.containers ?? []) {
          const now = found.state.containers.find(({ id }) => id === change.id)!.memory;
          const asked = finite(change.memory ?? now);
          const isTooLow = asked < finite(now) && asked <= found.containers.get(change.id)!;
          if (isAdmitted(change, found) === isTooLow)
            expect.fail(`${change.id}: ${now} to ${change.memory} with ${found.containers.get(change.id)} in use`);
        }
      }),
      cases(2500),
    );
  });
});
