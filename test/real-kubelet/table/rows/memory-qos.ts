import { MiB } from '../../../../src/core/quantities/sizes.ts';
import { amounts, both, container, limits, requests } from '../pod.ts';
import { type Row, observe, resized, running } from '../row.ts';

/** Pods with MemoryQoS: kubelet sets memory.high, and with TieredReservation memory.min or memory.low. */

const memory = (mebibytes: number): string => String(mebibytes * MiB);
/** kubelet's formula of memory.high with its default throttling factor. */
const high = (request: number, limit: number): string =>
  String(Math.floor(((request + (limit - request) * 0.9) * MiB) / 4096) * 4096);

/** @param tiered whether the policy is TieredReservation */
export const memoryQosRows = (tiered: boolean): readonly Row[] => {
  const reserved = (mebibytes: number): string => (tiered ? memory(mebibytes) : '0');
  return [
    {
      title: 'KEP-2570: Burstable: memory.high follows limit and request',
      pod: { containers: [container('app', { requests: amounts('20m', '64Mi'), limits: amounts('100m', '128Mi') })] },
      steps: [
        running('app'),
        observe('at first'),
        ...resized('limit up', { containers: { app: limits(undefined, '256Mi') } }),
        ...resized('request up', { containers: { app: requests(undefined, '128Mi') } }),
        ...resized('CPU', { containers: { app: { limits: amounts('200m'), requests: amounts('40m') } } }),
        ...resized('both down', {
          containers: { app: { limits: amounts(undefined, '96Mi'), requests: amounts(undefined, '48Mi') } },
        }),
      ],
      expected: {
        'at first: app memory.high': high(64, 128),
        'at first: app memory.low': reserved(64),
        'limit up: app memory.high': high(64, 256),
        'request up: app memory.high': high(128, 256),
        'request up: app memory.low': reserved(128),
        'CPU: app memory.high': high(128, 256),
        'both down: app memory.high': high(48, 96),
        'both down: app memory.low': reserved(48),
        'both down: app memory.max': memory(96),
      },
    },
    {
      title: 'KEP-2570: Guaranteed: no memory.high, raised and lowered',
      pod: { containers: [container('app', both('100m', '64Mi'))] },
      steps: [
        running('app'),
        observe('at first'),
        ...resized('up', { containers: { app: both('150m', '128Mi') } }),
        ...resized('down', { containers: { app: both('50m', '48Mi') } }),
      ],
      expected: {
        'up: app memory.high': 'max',
        'up: app memory.min': reserved(128),
        'down: app memory.min': reserved(48),
        'down: pod memory.max': memory(48),
      },
    },
    {
      title: 'KEP-2570: requests only: memory.high follows the node',
      pod: { containers: [container('app', requests('20m', '64Mi'))] },
      steps: [
        running('app'),
        observe('at first'),
        ...resized('up', { containers: { app: requests('40m', '128Mi') } }),
        ...resized('limit added', { containers: { app: limits(undefined, '256Mi') } }),
      ],
      expected: {
        'up: app memory.low': reserved(128),
        'limit added: app memory.high': high(128, 256),
        'limit added: pod memory.max': memory(256),
      },
    },
  ];
};
