import type { KernelName } from '../../support/node/index.ts';
import { admissionConfigurations } from '../admission/verdicts.ts';
import type { KubernetesRelease } from '../programs.ts';
import { isSince } from './compare.ts';
import type { Configuration } from './row.ts';
import { killedRows, volumeResizeRows } from './rows/kep-6030.ts';
import { eventRows, kindRows } from './rows/kinds.ts';
import { memoryQosRows, oomRows, swapRows } from './rows/memory.ts';
import { overheadRows } from './rows/overhead.ts';
import { cpuRows, resourceRows } from './rows/resources.ts';
import { volumeRows } from './rows/volumes.ts';

/** The time between two starts in a crash loop: short, but long enough for a resize in between. */
const quick = { crashLoopBackOff: { maxContainerRestartPeriod: '10s' } };
/** Since 1.37, kubelet sets memory.high only with a factor. This is the default of earlier releases. */
const throttled = { ...quick, featureGates: { MemoryQoS: true }, memoryThrottlingFactor: 0.9 };

/**
 * The table of pods, the table of resizes that Kubernetes and ResizePod admit, and the table of volumes: without and
 * with the feature gate by which kubelet resizes volumes itself.
 */
export type Table = 'pods' | 'admission' | 'volumes' | 'volumes with gate';

/** Feature gates of the API server and of kubelet. */
export const gatesOf = (table: Table): Readonly<Record<string, boolean>> =>
  table === 'volumes with gate' ? { InPlacePodVerticalScalingMemoryBackedVolumes: true } : {};

/** All rows, by the configuration of kubelet that they need. */
const podConfigurations: readonly Configuration[] = [
  {
    name: 'as released',
    kubelet: quick,
    usesApi: true,
    // The slowest rows come first.
    rows: [...oomRows, ...kindRows.toReversed(), ...volumeRows, ...overheadRows, ...resourceRows],
  },
  {
    name: 'MemoryQoS',
    kubelet: throttled,
    usesApi: true,
    rows: memoryQosRows(false),
  },
  {
    name: 'MemoryQoS with TieredReservation',
    since: '1.36',
    kubelet: { ...throttled, memoryReservationPolicy: 'TieredReservation' },
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
  {
    name: 'static CPU policy',
    kernel: 'debian',
    // One of the two CPUs is left for pods.
    kubelet: { ...quick, cpuManagerPolicy: 'static', reservedSystemCPUs: '0' },
    usesApi: true,
    rows: cpuRows,
  },
];

const volumeConfigurations: readonly Configuration[] = [
  { name: 'volumes', kubelet: {}, usesApi: true, atOnce: 2, rows: volumeResizeRows },
  { name: 'volumes, with a kill', kubelet: {}, usesApi: true, atOnce: 1, rows: killedRows },
];

const tables: Readonly<Record<Table, readonly Configuration[]>> = {
  pods: podConfigurations,
  admission: admissionConfigurations,
  volumes: volumeConfigurations,
  'volumes with gate': volumeConfigurations,
};

/** The configurations of a table that a release of kubelet has, in a node with this kernel. */
export function configurationsOf(
  kubernetes: KubernetesRelease,
  node: KernelName,
  table: Table = 'pods',
): readonly Configuration[] {
  const known = tables[table].filter(
    ({ since = kubernetes, kernel = 'uml' }) => isSince(kubernetes, since) && kernel === node,
  );
  // In earlier releases, a short pause between two starts needs a feature gate.
  if (isSince(kubernetes, '1.35')) return known;
  return known.map((configuration) => {
    const { featureGates = {}, ...others } = configuration.kubelet as { readonly featureGates?: object };
    return {
      ...configuration,
      kubelet: { ...others, featureGates: { ...featureGates, KubeletCrashLoopBackOffMax: true } },
    };
  });
}
