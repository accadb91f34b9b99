import { container, sized } from '../pod.ts';
import { observe, type Row, resized, running } from '../row.ts';

/** Memory-backed volumes with and without a sizeLimit. */

const grows = 'kubelet 1.36 mounts a volume once; the shim sets one without sizeLimit to the size of the pod';
const grownTo = (size: string): string =>
  `the shim sizes it as kubelet would mount it now: sizeLimit bounds it at ${size}`;
const mounted = (...names: readonly string[]) => ({
  volumeMounts: names.map((name) => ({ name, mountPath: `/${name}` })),
});
const follows = { name: 'follows', emptyDir: { medium: 'Memory' } } as const;

export const volumeRows: readonly Row[] = [
  {
    title: 'A10: a volume whose sizeLimit is the pod’s limit keeps it; one without grows and shrinks with the pod',
    pod: {
      containers: [container('app', sized(200, '128Mi'), mounted('follows', 'sized'))],
      volumes: [follows, { name: 'sized', emptyDir: { medium: 'Memory', sizeLimit: '128Mi' } }],
    },
    steps: [
      running('app'),
      observe('at first'),
      ...resized('up', { containers: { app: sized(200, '256Mi') } }),
      { kind: 'volume', name: 'follows', mebibytes: 256 },
      observe('grown'),
      ...resized('down', { containers: { app: sized(200, '128Mi') } }),
    ],
    expected: {
      'at first: volume sized': '128Mi',
      'grown: volume sized': '128Mi',
      'down: volume sized': '128Mi',
      'down: volume follows': '128Mi',
    },
    wanted: [{ field: 'grown: volume follows', direct: '128Mi', shim: '256Mi', reason: grows }],
    ignored: { 'up: volume follows': 'it grows when kubelet has resized the last container' },
  },
  {
    title: 'A10: a volume whose sizeLimit is above the pod’s limit grows no further than its sizeLimit',
    pod: {
      containers: [container('app', sized(200, '128Mi'), mounted('follows', 'sized'))],
      volumes: [follows, { name: 'sized', emptyDir: { medium: 'Memory', sizeLimit: '200Mi' } }],
    },
    steps: [
      running('app'),
      observe('at first'),
      ...resized('up', { containers: { app: sized(200, '256Mi') } }),
      { kind: 'volume', name: 'follows', mebibytes: 256 },
      observe('grown'),
      ...resized('down', { containers: { app: sized(200, '128Mi') } }),
    ],
    expected: { 'at first: volume sized': '128Mi', 'down: volume sized': '128Mi', 'down: volume follows': '128Mi' },
    wanted: [
      { field: 'grown: volume follows', direct: '128Mi', shim: '256Mi', reason: grows },
      { field: 'grown: volume sized', direct: '128Mi', shim: '200Mi', reason: grownTo('200Mi') },
    ],
    ignored: {
      'up: volume follows': 'it grows when kubelet has resized the last container',
      'up: volume sized': 'it grows when kubelet has resized the last container',
    },
  },
  {
    title: 'KEP-6030: a volume whose sizeLimit is below the pod’s limit keeps it',
    pod: {
      containers: [container('app', sized(200, '128Mi'), mounted('follows', 'sized'))],
      volumes: [follows, { name: 'sized', emptyDir: { medium: 'Memory', sizeLimit: '64Mi' } }],
    },
    steps: [
      running('app'),
      ...resized('up', { containers: { app: sized(200, '256Mi') } }),
      { kind: 'volume', name: 'follows', mebibytes: 256 },
      observe('grown'),
      ...resized('down', { containers: { app: sized(200, '128Mi') } }),
    ],
    expected: {
      'grown: volume sized': '64Mi',
      'down: volume sized': '64Mi',
      'down: volume follows': '128Mi',
    },
    wanted: [{ field: 'grown: volume follows', direct: '128Mi', shim: '256Mi', reason: grows }],
    ignored: { 'up: volume follows': 'it grows when kubelet has resized the last container' },
  },
];
