import { MiB } from '../../../../src/core/quantities/sizes.ts';
import { both, container, failUntil, SLOW_IMAGE, sized, waitAt } from '../pod.ts';
import type { Row } from '../row.ts';
import { backingOff, observe, ready, resize, resized, running, settled } from '../row.ts';

/** Pods with containers of each kind and state next to the one that is resized. */

const memory = (mebibytes: number): string => String(mebibytes * MiB);

export const kindRows: readonly Row[] = [
  {
    title: 'A2: an ephemeral container in a Guaranteed pod: the pod’s limit follows its containers',
    pod: { containers: [container('app', both('100m', '100Mi'))] },
    steps: [
      running('app'),
      { kind: 'debug', container: { ...container('debugger', {}), resources: undefined } },
      running('debugger'),
      observe('debugged'),
      ...resized('up', { containers: { app: both('150m', '200Mi') } }),
      ...resized('down', { containers: { app: both('50m', '100Mi') } }),
    ],
    expected: {
      'debugged: pod QoS class': 'Guaranteed',
      'debugged: debugger memory.max': 'max',
      'up: pod memory.max': memory(200),
      'down: pod memory.max': memory(100),
    },
  },
  {
    title: 'A3: a running init container is lowered: the pod keeps room for its app, which starts then',
    pod: {
      initContainers: [container('setup', sized(600, '96Mi'), waitAt('setup'))],
      containers: [container('app', sized(400, '90Mi'))],
    },
    steps: [
      running('setup'),
      observe('at first'),
      ...resized('lowered', { initContainers: { setup: sized(200, '48Mi') } }),
      { kind: 'open', gate: 'setup' },
      running('app'),
      observe('app runs'),
    ],
    expected: {
      'at first: pod memory.max': memory(96),
      'lowered: pod memory.max': memory(90),
      'lowered: setup memory.max': memory(48),
      'app runs: pod memory.max': memory(90),
      'app runs: pod cpu.max': '40000 100000',
    },
  },
  {
    title: 'KEP-1287: a running init container is raised above its pod, and the app is resized once it runs',
    pod: {
      initContainers: [container('setup', sized(200, '64Mi'), waitAt('setup'))],
      containers: [container('app', sized(400, '90Mi'))],
    },
    steps: [
      running('setup'),
      ...resized('raised', { initContainers: { setup: sized(600, '128Mi') } }),
      { kind: 'open', gate: 'setup' },
      running('app'),
      observe('app runs'),
      ...resized('app raised', { containers: { app: sized(800, '160Mi') } }),
    ],
    expected: {
      'raised: pod memory.max': memory(128),
      'raised: setup memory.max': memory(128),
      'app runs: app memory.max': memory(90),
      'app raised: pod memory.max': memory(160),
    },
  },
  {
    title: 'A9: an init container that has ended with 0: the app is raised and lowered',
    pod: {
      initContainers: [container('setup', sized(200, '64Mi'), { command: ['true'] })],
      containers: [container('app', sized(400, '96Mi'))],
    },
    steps: [
      running('app'),
      ...resized('up', { containers: { app: sized(600, '160Mi') } }),
      ...resized('down', { containers: { app: sized(200, '64Mi') } }),
    ],
    expected: { 'up: pod memory.max': memory(160), 'down: pod memory.max': memory(64) },
  },
  {
    title: 'KEP-1287: a sidecar and its app: raised, lowered, and in opposite directions',
    pod: {
      initContainers: [container('proxy', sized(200, '64Mi'), { restartPolicy: 'Always' })],
      containers: [container('app', sized(400, '96Mi'))],
    },
    steps: [
      running('proxy', 'app'),
      observe('at first'),
      ...resized('sidecar up', { initContainers: { proxy: sized(400, '128Mi') } }),
      ...resized('opposite', {
        initContainers: { proxy: sized(200, '64Mi') },
        containers: { app: sized(600, '160Mi') },
      }),
      ...resized('both down', {
        initContainers: { proxy: sized(100, '48Mi') },
        containers: { app: sized(200, '64Mi') },
      }),
    ],
    expected: {
      'at first: pod memory.max': memory(160),
      'sidecar up: pod memory.max': memory(224),
      'opposite: pod memory.max': memory(224),
      'both down: pod memory.max': memory(112),
    },
  },
  {
    title: 'KEP-1287: two containers in opposite directions, memory and CPU crosswise',
    pod: { containers: [container('a', sized(200, '64Mi')), container('b', sized(600, '160Mi'))] },
    steps: [
      running('a', 'b'),
      ...resized('memory crosswise', { containers: { a: sized(200, '160Mi'), b: sized(600, '64Mi') } }),
      ...resized('both crosswise', { containers: { a: sized(600, '64Mi'), b: sized(200, '160Mi') } }),
    ],
    expected: {
      'memory crosswise: pod memory.max': memory(224),
      'memory crosswise: a memory.max': memory(160),
      'both crosswise: a cpu.max': '60000 100000',
      'both crosswise: b memory.max': memory(160),
    },
  },
  {
    title: 'A4: a crash-looping sibling: the pod has room for it when it comes back',
    pod: { containers: [container('a', sized(200, '100Mi')), container('b', sized(200, '200Mi'), failUntil('b'))] },
    steps: [
      running('a'),
      backingOff('b'),
      ...resized('raised', { containers: { a: sized(400, '250Mi') } }),
      { kind: 'open', gate: 'b' },
      ready('b'),
      observe('b is back'),
      ...resized('lowered', { containers: { a: sized(200, '100Mi') } }),
    ],
    expected: {
      'raised: pod memory.max': memory(450),
      'b is back: pod memory.max': memory(450),
      'b is back: b memory.max': memory(200),
      'lowered: pod memory.max': memory(300),
    },
    ignored: {
      'raised: b *': 'it may run for a moment',
      'b is back: b restarts': 'the number depends on timing',
      'lowered: b restarts': 'the number depends on timing',
    },
  },
  {
    title: 'A4: the image of a second container is being pulled: the pod has room for it when it comes',
    pod: {
      containers: [
        container('a', sized(200, '100Mi')),
        container('b', sized(200, '200Mi'), { image: SLOW_IMAGE, imagePullPolicy: 'Always' }),
      ],
    },
    steps: [
      { kind: 'pull', answer: 'none yet' },
      resize({ containers: { a: sized(400, '250Mi') } }),
      { kind: 'event', reason: 'ResizeStarted' },
      observe('pulling'),
      { kind: 'pull', answer: 'not found' },
      ...settled('no image'),
      { kind: 'pull', answer: 'image' },
      running('a', 'b'),
      observe('b has come'),
      ...resized('lowered', { containers: { a: sized(200, '100Mi') } }),
    ],
    expected: {
      'no image: pod memory.max': memory(450),
      'b has come: pod memory.max': memory(450),
      'b has come: b memory.max': memory(200),
      'lowered: pod memory.max': memory(300),
    },
  },
];

const restarting = { resizePolicy: [{ resourceName: 'memory', restartPolicy: 'RestartContainer' }] };

export const eventRows: readonly Row[] = [
  {
    title: 'A13: raised, lowered, and in opposite directions',
    pod: { containers: [container('a', sized(200, '64Mi')), container('b', sized(400, '128Mi'))] },
    steps: [
      running('a', 'b'),
      observe('at first'),
      ...resized('up', { containers: { a: sized(400, '128Mi') } }),
      ...resized('opposite', { containers: { a: sized(200, '64Mi'), b: sized(600, '192Mi') } }),
      ...resized('down', { containers: { b: sized(200, '64Mi') } }),
    ],
    expected: { 'up: pod memory.max': memory(256), 'down: pod memory.max': memory(128) },
  },
  {
    title: 'A13: a restart by RestartContainer',
    pod: { containers: [container('app', sized(200, '64Mi'), restarting)] },
    steps: [
      running('app'),
      ...resized('up', { containers: { app: sized(200, '128Mi') } }),
      ...resized('CPU', { containers: { app: sized(400, '128Mi') } }),
    ],
    expected: { 'up: app restarts': '1', 'CPU: app restarts': '1', 'CPU: pod memory.max': memory(128) },
  },
  {
    title: 'A13: a crash-looping sibling',
    pod: { containers: [container('a', sized(200, '100Mi')), container('b', sized(200, '64Mi'), failUntil('b'))] },
    steps: [
      running('a'),
      backingOff('b'),
      ...resized('raised', { containers: { a: sized(400, '200Mi') } }),
      { kind: 'open', gate: 'b' },
      ready('b'),
      observe('b is back'),
    ],
    expected: { 'raised: a memory.max': memory(200), 'b is back: pod memory.max': memory(264) },
    ignored: {
      'raised: b *': 'it may run for a moment',
      'b is back: b restarts': 'the number depends on timing',
    },
  },
];
