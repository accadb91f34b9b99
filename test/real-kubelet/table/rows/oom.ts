import { MiB } from '../../../../src/core/quantities/sizes.ts';
import { type Pod, READY, amounts, container, readyByFile } from '../pod.ts';
import { type Row, backingOff, observe, ready, resize, statusOf } from '../row.ts';

/** kubernetes 138760: kubelet does not raise the pod limit when it resizes a container that does not run. */

const memory = (mebibytes: number): string => String(mebibytes * MiB);
const restarts = (pod: Pod): number => statusOf(pod, 'app')?.restartCount ?? 0;
const wasKilled = (pod: Pod): boolean => {
  const { state, lastState } = statusOf(pod, 'app') ?? {};
  return [state?.terminated, lastState?.terminated].some((ended) => ended?.reason === 'OOMKilled');
};

/** If kubelet tries between two kills, while the container runs, its raised pod limit heals without the shim. */
const heals = 'kubelet leaves the pod at its old limit, and the new one of the container does not fit in';

/** No CPU limit, so that the container is killed soon. */
const resources = (size: string) => ({ limits: amounts(undefined, size), requests: amounts('50m', size) });

/** Holds 48 MiB: dd reads one block, and cannot write more of it than fits into a pipe that nobody reads. */
const greedy = {
  command: [
    'sh',
    '-c',
    `dd if=/dev/zero bs=50331648 count=1 | { head -c 1 >/dev/null; touch ${READY}; sleep 1000000; }`,
  ],
  ...readyByFile,
};

export const oomRows: readonly Row[] = [
  {
    title: 'KEP-1287: an OOM crash loop is healed by a resize (kubernetes 138760)',
    pod: { containers: [container('app', resources('32Mi'), greedy)] },
    steps: [
      backingOff('app'),
      resize({ containers: { app: resources('128Mi') } }),
      {
        kind: 'until',
        side: 'direct',
        what: 'app to be OOM-killed twice more, or ready',
        holds: (pod, before) =>
          (wasKilled(pod) && restarts(pod) >= restarts(before) + 2) || statusOf(pod, 'app')?.ready === true,
      },
      ready('app', 'shim'),
      observe('resized'),
    ],
    expected: { 'resized: app reported allocated.memory': '128Mi' },
    wanted: [
      { field: 'resized: app ready', direct: ['false', 'true'], shim: 'true', reason: heals },
      { field: 'resized: pod memory.max', direct: [memory(32), memory(128)], shim: memory(128), reason: heals },
      { field: 'resized: pod reported limits.memory', direct: ['32Mi', '128Mi'], shim: '128Mi', reason: heals },
    ],
    ignored: {
      ...Object.fromEntries(
        ['app restarts', 'app state', 'pod OOM kills'].map((field) => [
          `resized: ${field}`,
          'a crash loop changes it all the time',
        ]),
      ),
      ...Object.fromEntries(
        ['app memory.*', 'app cpu.*', 'app OOM kills'].map((field) => [
          `resized: ${field}`,
          'a container in a crash loop has no cgroup most of the time',
        ]),
      ),
    },
  },
];
