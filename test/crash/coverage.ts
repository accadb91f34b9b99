import { crashPoints } from '../../src/core/crash-points/index.ts';
import type { ScenarioReport } from './campaign.ts';

/** What of a transaction's cgroup writes and calls has to be met: each before and after. */
const ABOUT: Readonly<{ [kind: string]: readonly string[] }> = {
  'cgroup-write': [
    ...['cpu.max', 'cpu.weight', 'memory.max', 'memory.high', 'memory.high max', 'memory.reclaim'],
    ...['memory.low', 'memory.min'],
  ],
  'backend-call': ['UpdateContainerResources', 'UpdatePodSandboxResources'],
};

/** Kinds of points at which no scenario was killed. A kind that is new in the source is among them until one is. */
export function unmetPoints(scenarios: readonly ScenarioReport[]): readonly string[] {
  const met = new Set(
    scenarios.flatMap(({ points, recoveries }) =>
      [...points, ...recoveries].map((point) => point.replace(/#\d+$/, '')),
    ),
  );
  const wanted = crashPoints.flatMap((point) => {
    const about = ABOUT[point.replace(/-(before|after)$/, '')];
    return about === undefined ? [point] : about.map((what) => `${point} ${what}`);
  });
  // It has only begun to serve there, and nothing is under way.
  return wanted.filter((point) => point !== 'serving' && !met.has(point));
}
