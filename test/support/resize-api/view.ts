import { bytes, cpuShares, cpuWeight, microseconds } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { PodView } from '../../../src/sandbox/report/pod-view.ts';
import { app } from './resize-api.ts';

/** A pod with a container, a volume, and values of each kind. */
export const view: PodView = {
  limits: {
    memory: bytes(256 * MiB),
    memoryUsed: bytes(12345),
    cpu: { quota: 'max', period: microseconds(100_000) },
    weight: cpuWeight(39),
  },
  containers: [
    {
      id: app,
      name: 'app',
      limits: {
        memory: bytes(256 * MiB),
        memoryUsed: bytes(1),
        cpu: { quota: microseconds(50_000), period: microseconds(100_000) },
        shares: cpuShares(512),
        weight: undefined,
      },
    },
  ],
  volumes: [
    {
      name: 'cache',
      size: bytes(64 * MiB),
      used: bytes(10),
      policy: { kind: 'container-share', hundredths: 1250, container: 'app' },
    },
  ],
  outcome: {
    desired: {
      pod: { cpu: { quota: 'max', period: microseconds(100_000) } },
      containers: new Map([
        [app, { memory: bytes(512 * MiB), shares: cpuShares(1024), memoryRequest: bytes(64 * MiB) }],
      ]),
      volumes: new Map([['cache', { kind: 'share', hundredths: 5000 }]]),
    },
    allocated: { containers: new Map([[app, { memory: bytes(256 * MiB) }]]) },
    actuated: { volumes: new Map([['cache', bytes(64 * MiB)]]), pod: { weight: cpuWeight(39) } },
    volumeErrors: new Map([['cache', { reason: 'VOLUME_IN_USE', message: 'stores 10', at: 1 }]]),
  },
  lastError: { reason: 'UNDO_FAILED', message: 'two values' },
};
