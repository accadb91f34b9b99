import type { KubernetesRelease } from '../programs.ts';
import type { Configuration } from './row.ts';
import { eventRows } from './rows/events.ts';
import { kindRows } from './rows/kinds.ts';
import { memoryQosRows } from './rows/memory-qos.ts';
import { oomRows } from './rows/oom.ts';
import { overheadRows } from './rows/overhead.ts';
import { resourceRows } from './rows/resources.ts';
import { swapRows } from './rows/swap.ts';
import { volumeRows } from './rows/volumes.ts';
import { isSince } from './since.ts';

/** The time between two starts in a crash loop: short, but long enough for a resize in between. */
const quick = { crashLoopBackOff: { maxContainerRestartPeriod: '10s' } };

/**
 * All rows, by the configuration of kubelet that they need. There is no row for the static CPU policy: it needs the
 * cgroup controller cpuset, which User Mode Linux does not have.
 */
const configurations: readonly Configuration[] = [
  {
    name: 'as released',
    kubelet: quick,
    usesApi: true,
    // The slowest rows come first.
    rows: [...oomRows, ...kindRows.toReversed(), ...volumeRows, ...overheadRows, ...resourceRows],
  },
  {
    name: 'MemoryQoS',
    kubelet: { ...quick, featureGates: { MemoryQoS: true } },
    usesApi: true,
    rows: memoryQosRows(false),
  },
  {
    name: 'MemoryQoS with TieredReservation',
    since: '1.36',
    kubelet: { ...quick, featureGates: { MemoryQoS: true }, memoryReservationPolicy: 'TieredReservation' },
    usesApi: false,
    rows: memoryQosRows(true),
  },
  {
    name: 'Evented PLEG',
    kubelet: { ...quick, featureGates: { EventedPLEG: true } },
    usesApi: false,
    rows: eventRows,
  },
  {
    name: 'LimitedSwap',
    kubelet: { ...quick, memorySwap: { swapBehavior: 'LimitedSwap' } },
    swap: true,
    usesApi: false,
    rows: swapRows,
  },
];

/** The configurations that a release of kubelet has. */
export function configurationsOf(kubernetes: KubernetesRelease): readonly Configuration[] {
  const known = configurations.filter(({ since = kubernetes }) => isSince(kubernetes, since));
  // Before, a short pause between two starts needs a feature gate.
  if (isSince(kubernetes, '1.35')) return known;
  return known.map((configuration) => {
    const { featureGates = {}, ...others } = configuration.kubelet as { readonly featureGates?: object };
    return {
      ...configuration,
      kubelet: { ...others, featureGates: { ...featureGates, KubeletCrashLoopBackOffMax: true } },
    };
  });
}
