import { MiB } from '../../../../src/core/quantities/sizes.ts';
import { amounts, both, container } from '../pod.ts';
import { type Row, observe, resize, resized, running } from '../row.ts';

/** Pods under the static CPU policy. kubelet reserves CPU 0 for itself, so that a container can have CPU 1 alone. */

/** kubelet sets no quota for a container with exclusive CPUs (DisableCPUQuotaWithExclusiveCPUs). */
const NO_QUOTA = 'max 100000';

export const cpuRows: readonly Row[] = [
  {
    title: 'KEP-1287: exclusive CPUs: a change of CPU is infeasible, memory is resized in place',
    pod: { containers: [container('app', both('1', '64Mi'))] },
    steps: [
      running('app'),
      {
        kind: 'until',
        what: 'kubelet reports the resources',
        holds: (pod) => pod.status.containerStatuses?.[0]?.allocatedResources?.['cpu'] === '1',
      },
      observe('at first'),
      resize({ containers: { app: { limits: amounts('500m'), requests: amounts('500m') } } }),
      {
        kind: 'until',
        what: 'kubelet has refused it',
        holds: (pod) => pod.status.conditions?.some(({ type }) => type === 'PodResizePending') ?? false,
      },
      observe('refused'),
      ...resized('withdrawn', { containers: { app: both('1', '64Mi') } }),
      { kind: 'resizectl', changes: ['app.cpu=500m', 'app.requests.cpu=500m'] },
      observe('by ResizePod'),
      ...resized('memory', { containers: { app: both('1', '96Mi') } }),
    ],
    expected: {
      'at first: app cpuset.cpus': '1',
      'refused: condition PodResizePending':
        'True Infeasible Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"',
      'refused: app cpu.max': NO_QUOTA,
      'refused: app cpuset.cpus': '1',
      'by ResizePod: app cpu.max': NO_QUOTA,
      'by ResizePod: app cpuset.cpus': '1',
      'memory: app memory.max': String(96 * MiB),
      'memory: app cpuset.cpus': '1',
      'memory: app cpu.max': NO_QUOTA,
      'memory: app restarts': '0',
    },
    wanted: [
      {
        field: 'by ResizePod: answer',
        direct: undefined,
        shim: 'EXCLUSIVE_CPUS',
        reason: 'only the shim has the call; it rejects what kubelet finds infeasible',
      },
    ],
  },
];
