import { MiB } from '../../../../src/core/quantities/sizes.ts';
import { sized, container, failUntil } from '../pod.ts';
import { type Row, backingOff, observe, ready, resized, running } from '../row.ts';

/** Evented PLEG: kubelet learns of containers from GetContainerEvents, which carries their resources too. */

const memory = (mebibytes: number): string => String(mebibytes * MiB);
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
