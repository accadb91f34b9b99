import { crashPoints } from '../../src/core/crash-points.ts';
import type { ScenarioReport } from './campaign.ts';

/** The cgroup writes and calls of transactions that have to be tested, each before and after. */
const TARGETS: Readonly<{ [kind: string]: readonly string[] }> = {
  'cgroup-write': [
    ...['cpu.max', 'cpu.weight', 'memory.max', 'memory.high', 'memory.high max', 'memory.reclaim'],
    ...['memory.low', 'memory.min'],
  ],
  'backend-call': ['UpdateContainerResources', 'UpdatePodSandboxResources'],
};

/**
 * Returns the crash points at which no scenario was killed. A new one in the source is returned until a scenario passes
 * it.
 */
export function unmetPoints(scenarios: readonly ScenarioReport[]): readonly string[] {
  const met = new Set(
    scenarios.flatMap(({ points, recoveries }) =>
      [...points, ...recoveries].map((point) => point.replace(/#\d+$/, '')),
    ),
  );
  const required = crashPoints.flatMap((point) => {
    const targets = TARGETS[point.replace(/-(before|after)$/, '')];
    return targets === undefined ? [point] : targets.map((target) => `${point} ${target}`);
  });
  // At `serving` the shim has only started, and no resize is in progress.
  return required.filter((point) => point !== 'serving' && !met.has(point));
}
