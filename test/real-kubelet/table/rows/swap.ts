import { MiB } from '../../../../src/core/quantities/sizes.ts';
import { amounts, both, container, limits, requests } from '../pod.ts';
import { type Row, observe, resize, resized, running } from '../row.ts';

/** Pods with LimitedSwap: a Burstable container's share of node swap is its request's share of node memory. */

const memory = (mebibytes: number): string => String(mebibytes * MiB);
const burstable = { requests: amounts('20m', '64Mi'), limits: amounts('200m', '128Mi') };
const restarting = { resizePolicy: [{ resourceName: 'memory', restartPolicy: 'RestartContainer' }] };

export const swapRows: readonly Row[] = [
  {
    title: 'A8: Burstable: a new limit and new CPUs leave memory.swap.max',
    pod: { containers: [container('app', burstable)] },
    steps: [
      running('app'),
      observe('at first'),
      ...resized('limit up', { containers: { app: limits(undefined, '256Mi') } }),
      ...resized('CPU', { containers: { app: { limits: amounts('400m'), requests: amounts('40m') } } }),
      ...resized('limit down', { containers: { app: limits(undefined, '96Mi') } }),
    ],
    expected: { 'limit up: app memory.max': memory(256), 'limit down: app memory.max': memory(96) },
  },
  {
    title: 'A8: Burstable: kubelet refuses a new memory request of what may swap, until it is withdrawn',
    pod: { containers: [container('app', burstable)] },
    steps: [
      running('app'),
      resize({ containers: { app: requests(undefined, '96Mi') } }),
      {
        kind: 'until',
        what: 'kubelet has refused it',
        holds: (pod) => pod.status.conditions?.some(({ type }) => type === 'PodResizePending') ?? false,
      },
      observe('refused'),
      ...resized('withdrawn', { containers: { app: requests(undefined, '64Mi') } }),
      { kind: 'resizectl', changes: ['app.requests.memory=96Mi'] },
      observe('by ResizePod'),
      ...resized('limit up', { containers: { app: limits(undefined, '256Mi') } }),
    ],
    expected: {
      'refused: condition PodResizePending':
        'True Infeasible In-place resize of containers with swap is not supported.',
      'refused: app memory.max': memory(128),
      'by ResizePod: app memory.max': memory(128),
      'limit up: app memory.max': memory(256),
    },
    wanted: [
      {
        field: 'by ResizePod: answer',
        direct: undefined,
        shim: 'SWAP_NOT_RESIZABLE',
        reason: 'only the shim has the call; it rejects what kubelet finds infeasible',
      },
    ],
  },
  {
    title: 'A8: Burstable with RestartContainer: memory.swap.max follows the request by a restart',
    pod: { containers: [container('app', burstable, restarting)] },
    steps: [
      running('app'),
      observe('at first'),
      ...resized('up', {
        containers: { app: { requests: amounts('20m', '128Mi'), limits: amounts('200m', '256Mi') } },
      }),
      ...resized('CPU', { containers: { app: { requests: amounts('40m'), limits: amounts('400m') } } }),
    ],
    expected: { 'up: app restarts': '1', 'up: app memory.max': memory(256), 'CPU: app restarts': '1' },
  },
  {
    title: 'A8: Guaranteed: no swap, raised and lowered',
    pod: { containers: [container('app', both('100m', '64Mi'))] },
    steps: [
      running('app'),
      ...resized('up', { containers: { app: both('150m', '128Mi') } }),
      ...resized('down', { containers: { app: both('50m', '48Mi') } }),
    ],
    expected: { 'up: app memory.swap.max': '0', 'down: app memory.swap.max': '0' },
  },
  {
    title: 'A8: requests only: more CPU, and a limit added to what may swap',
    pod: { containers: [container('app', requests('20m', '64Mi')), container('b', requests('20m', '64Mi'))] },
    steps: [
      running('app', 'b'),
      observe('at first'),
      ...resized('CPU up', { containers: { app: requests('40m') } }),
      ...resized('limit added', { containers: { app: limits(undefined, '256Mi') } }),
    ],
    expected: { 'limit added: app memory.max': memory(256) },
  },
];
