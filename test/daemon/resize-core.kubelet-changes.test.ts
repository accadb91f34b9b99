import { expect, test } from 'vitest';
import { bytes } from '../../src/core/quantities/numbers.ts';
import { kubeletChanges } from '../../src/daemon/resize-core.ts';
import type { PodEntry } from '../../src/kubelet/checkpoint.ts';

const entry = (memory: number): PodEntry => ({
  containers: new Map(),
  pod: undefined,
  requests: { containers: new Map([['app', { memory: bytes(memory) }]]), pod: undefined },
  isComplete: true,
});

test("each change of kubelet's state is checked for decreases, and resizes are retried only if it frees requests", () => {
  let pods: ReadonlyMap<string, PodEntry> = new Map();
  let [checked, freed] = [0, 0];
  const changed = kubeletChanges(
    { allocatedPods: () => pods },
    { check: () => void (checked += 1) },
    { roomFreed: () => void (freed += 1) },
  );
  const freedAfter = (...entries: readonly (readonly [string, PodEntry])[]): number => {
    pods = new Map(entries);
    changed();
    return freed;
  };
  // The first reading, a new pod, a raised request, a lowered request, no change, a removed pod.
  expect([
    freedAfter(['a', entry(100)]),
    freedAfter(['a', entry(100)], ['b', entry(100)]),
    freedAfter(['a', entry(200)], ['b', entry(100)]),
    freedAfter(['a', entry(150)], ['b', entry(100)]),
    freedAfter(['a', entry(150)], ['b', entry(100)]),
    freedAfter(['a', entry(150)]),
  ]).toEqual([0, 0, 0, 1, 1, 2]);
  expect(checked).toBe(6);
});
