import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { MemoryUse } from '../../../src/cgroups/index.ts';
import { isBelowUnreclaimable } from '../../../src/resize/admission/memory-in-use.ts';
import { type Bytes, type Limit, bytes } from '../../../src/core/quantities/index.ts';
import { cases } from '../../support/property-cases.ts';
import { Case, any, derived, expectWithin, holds, undone } from '../../support/resize/plan-cases.ts';
import { MiB, inPages } from '../../support/resize/pods.ts';
import type { PodState } from '../../../src/sandbox/pod-state.ts';
import type { ContainerLimits } from '../../../src/sandbox/limits.ts';
import type { PodTarget } from '../../../src/resize/model/target.ts';
import { compareLimits } from '../../../src/resize/model/compare.ts';
import { podLimitsFor } from '../../../src/resize/plan/pod-limits.ts';

// What docs/resize.md says of memory in use and of volumes, on 45,000 random pods.

/** A resize, with the memory of the pod that cannot be reclaimed: what each container and the whole pod have in use. */
interface InUse {
  readonly state: PodState;
  readonly target: PodTarget;
  readonly containers: ReadonlyMap<string, Bytes>;
  readonly pod: Bytes;
  readonly [fc.toStringMethod]: () => string;
}

/** How much of its limit a container uses; or just what is asked for it, the border between too much and enough. */
const percent = fc.oneof(fc.integer({ min: 0, max: 100 }), fc.constant('as asked' as const));

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
      return part === 'as asked' ? Math.min(finite(memory), finite(asked)) : (finite(memory) * part) / 100;
    });
    const sum = wanted.reduce((total, amount) => total + amount, 0);
    const most = finite(state.memory);
    // A pod that is over-committed has all the same no more in use than its limit.
    const used = wanted.map((amount) => pages(amount * Math.min(1, most / Math.max(1, sum))));
    const theirs = used.reduce((total, amount) => total + amount, 0);
    const pod = pages(theirs + ((most - theirs) * rest) / 100);
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
  kernelUnreclaimable: bytes(0),
  oomKills: 0,
});

function isAdmitted({ id, memory }: ContainerLimits, { state, containers }: InUse): boolean {
  const now = state.containers.find((container) => container.id === id)!.memory;
  return memory === undefined || !isBelowUnreclaimable(memory, now, use(containers.get(id)!));
}

/** What is left of a resize when all that use forbids is taken out: containerChanges, and a lowering of the pod that nobody asked for. */
function admitted(found: InUse): Case {
  const { state, target, pod } = found;
  const containers = (target.containers ?? []).filter((change) => isAdmitted(change, found));
  const { memory = state.memory, ...cpu } = podLimitsFor(state, containers);
  const isForbidden = isBelowUnreclaimable(memory, state.memory, use(pod));
  const limits = { ...cpu, ...(!isForbidden && { memory }) };
  return new Case(state, { ...limits, containers, call: 'none', volumes: target.volumes });
}

describe('what is in use and cannot be reclaimed', () => {
  test('is within every limit after every step of what is admitted, and on the way back; the sums stay within as well', () => {
    fc.assert(
      fc.property(inUse, (found) => {
        const { states, steps, end } = admitted(found);
        for (const [at, state] of [...states, ...undone(end, steps)].entries()) {
          const tooLow = [{ id: 'pod', memory: state.memory }, ...state.containers].find(
            ({ id, memory }) => memory !== 'max' && memory < (found.containers.get(id) ?? found.pod),
          );
          if (tooLow !== undefined) expect.fail(`the limit of ${tooLow.id} is under its use after ${at} steps`);
        }
        expectWithin(states, 'derived');
      }),
      cases(20_000),
    );
  });

  test('is why a container is refused less, and nothing else is: less than its use, or just that, and less than it has', () => {
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
      cases(10_000),
    );
  });
});

describe('a volume', () => {
  test('is never larger than a limit in between, when it is not at the start and will not be', () => {
    holds(15_000, any, ({ states, state, end, steps }) => {
      const all = [...states, ...undone(end, steps)];
      const limitsOf = (at: PodState): Limit<Bytes>[] => [at.memory, ...at.containers.map(({ memory }) => memory)];
      const fits = (at: PodState, volume: number, limit: number): boolean =>
        compareLimits(at.volumes[volume]!.size, limitsOf(at)[limit]!) <= 0;
      for (const [volume, { name }] of state.volumes.entries()) {
        for (const limit of limitsOf(state).keys()) {
          if (!fits(state, volume, limit) || !fits(end, volume, limit)) continue;
          const at = all.findIndex((between) => !fits(between, volume, limit));
          if (at !== -1) expect.fail(`${name} is larger than a limit after ${at} steps`);
        }
      }
    });
  });
});
