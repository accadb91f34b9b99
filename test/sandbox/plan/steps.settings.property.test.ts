import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { plan } from '../../../src/sandbox/plan/steps.ts';
import type { ContainerLimits, LiveContainer, PodState } from '../../../src/sandbox/pods/pod-state.ts';
import { Case, expectWithin, holds, undone } from '../../support/resize/plan-cases.ts';
import { setUp, setup } from '../../support/resize/kubelet-pods.ts';
import { NO_VOLUMES, podState, containerChanges } from '../../support/resize/pods.ts';
import { podLimitsFor } from '../../../src/sandbox/plan/pod-limits.ts';

// Swap and other settings of containers, on thousands of random pods and resizes.

const swapMax = fc.oneof(
  fc.constant('max' as const),
  fc.integer({ min: 0, max: 8 }).map((n) => bytes(n * 8 * MiB)),
);
const settings = fc.record(
  {
    'memory.high': fc.constantFrom('max', String(8 * MiB), String(16 * MiB)),
    'memory.low': fc.constantFrom('0', '4096'),
    'cpuset.cpus': fc.constantFrom('0-3', '0-1', '2'),
    'hugetlb.2MB.max': fc.constantFrom('max', '0'),
  },
  { requiredKeys: [], noNullPrototype: true },
);
const others = fc.record({ swap: swapMax, settings }, { requiredKeys: [], noNullPrototype: true });

/** A resize in which each container has swap and settings, which it keeps or changes. */
const withSettings: fc.Arbitrary<Case> = fc
  .record({
    state: podState,
    wanted: containerChanges,
    now: fc.array(fc.record({ swap: swapMax, settings }, { requiredKeys: ['settings'], noNullPrototype: true }), {
      minLength: 10,
      maxLength: 10,
    }),
    then: fc.array(fc.option(others, { nil: undefined, freq: 2 }), { minLength: 10, maxLength: 10 }),
  })
  .map(({ state: bare, wanted, now, then }) => {
    const containers = bare.containers.map((container, index): LiveContainer => ({ ...container, ...now[index] }));
    const state: PodState = { ...bare, containers };
    const targets = wanted(state).map((limits, index): ContainerLimits => {
      const { settings: asked = {}, swap } = then[index] ?? {};
      const known = Object.entries(asked).filter(([file]) => file in (containers[index]!.settings ?? {}));
      return { ...limits, ...(swap !== undefined && { swap }), settings: Object.fromEntries(known) };
    });
    return new Case(state, { ...podLimitsFor(state, targets), containers: targets, call: 'none', volumes: NO_VOLUMES });
  });

test('each container ends with the swap and settings of its target, and keeps those that the target does not set', () => {
  holds(2500, withSettings, ({ state, target, end }) => {
    for (const [index, { swap, settings: found }] of end.containers.entries()) {
      const [before, wanted] = [state.containers[index]!, target.containers?.[index]];
      const changes = { ...before.settings, ...wanted?.settings };
      expect(found).toEqual(changes);
      expect(swap).toBe(before.swap === undefined ? undefined : (wanted?.swap ?? before.swap));
    }
  });
});

test('a rollback restores swap and settings, and no step exceeds a limit of the pod', () => {
  holds(2500, withSettings, ({ state, states, steps }) => {
    expectWithin(states, 'derived');
    expect(isDeepStrictEqual(undone(states.at(-1)!, steps).at(-1), state)).toBe(true);
  });
});

test('swap changes only together with memory, because CRI sets their sum', () => {
  holds(2500, withSettings, ({ containerSteps }) => {
    for (const { swap, memory } of containerSteps) if (swap !== undefined) expect(memory).toBeDefined();
  });
});

test('an update of memory includes all settings of the target, because the runtime would write its stored ones', () => {
  holds(2500, withSettings, ({ state, target, containerSteps }) => {
    for (const [index, { id, swap, settings: wanted = {} }] of (target.containers ?? []).entries()) {
      const before = state.containers[index]!;
      const own = containerSteps.filter((step) => step.id === id);
      const withMemory = own.find(({ memory }) => memory !== undefined && memory.from !== memory.to);
      if (withMemory !== undefined && swap !== undefined && before.swap !== undefined)
        expect(withMemory.swap).toEqual({ from: before.swap, to: swap });
      const unchanged = Object.entries(wanted).filter(([file, to]) => before.settings?.[file] === to);
      for (const [file] of unchanged) for (const step of own) expect(step.settings).toHaveProperty([file]);
    }
  });
});

test('a second plan for the same swap and settings has no steps', () => {
  holds(2500, withSettings, ({ target, end }) => {
    expect(plan(end, target)).toEqual([]);
  });
});

/** A resize of a pod with what kubelet derives from limits and requests, which follows the new limits. */
const setUpByKubelet: fc.Arbitrary<Case> = fc
  .record({ state: podState, wanted: containerChanges, kubelet: setup })
  .map(({ state: bare, wanted, kubelet }) => {
    const state: PodState = { ...bare, containers: setUp(bare.containers, kubelet) };
    const targets = wanted(state).map((limits): ContainerLimits => {
      const place = state.containers.findIndex(({ id }) => id === limits.id);
      const [then] = setUp([{ ...state.containers[place]!, ...limits }], {
        ...kubelet,
        parts: kubelet.parts.slice(place),
      });
      return { ...limits, ...(then?.settings && { settings: then.settings }) };
    });
    return new Case(state, { ...podLimitsFor(state, targets), containers: targets, call: 'none', volumes: NO_VOLUMES });
  });

test('KEP-2570: the memory.high that kubelet derives from a memory limit changes in the same update as the limit', () => {
  holds(1500, setUpByKubelet, ({ states, state, end }) => {
    const textOf = ({ memory, settings }: LiveContainer): string => `${memory}, high ${settings?.['memory.high']}`;
    for (const [index, before] of state.containers.entries()) {
      const ends = [before, end.containers[index]!].map(textOf);
      const found = states.map(({ containers }) => textOf(containers[index]!)).find((text) => !ends.includes(text));
      if (found !== undefined) expect.fail(`${found} is neither of ${ends.join(' and ')}`);
    }
  });
});
