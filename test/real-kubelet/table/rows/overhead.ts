import { MiB } from '../../../../src/core/quantities/sizes.ts';
import { amounts, container, limits, OVERHEAD_CLASS, requests } from '../pod.ts';
import { observe, type Row, resized, running } from '../row.ts';

/** Pods of a RuntimeClass with an overhead of 20m and 120Mi, which kubelet subtracts even from "no limit". */

const memory = (mebibytes: number): string => String(mebibytes * MiB);
const cpu = (milli: number): string => `${milli * 100} 100000`;
const runtimeClassName = OVERHEAD_CLASS;
const smallRequests = amounts('20m', '32Mi');

export const overheadRows: readonly Row[] = [
  {
    title: 'A1: overhead, both limits: raised and lowered',
    pod: {
      runtimeClassName,
      containers: [container('app', { requests: smallRequests, limits: amounts('100m', '64Mi') })],
    },
    steps: [
      running('app'),
      observe('at first'),
      ...resized('memory up', { containers: { app: limits(undefined, '128Mi') } }),
      ...resized('CPU up', { containers: { app: limits('200m') } }),
      ...resized('requests up', { containers: { app: requests('40m', '64Mi') } }),
      ...resized('all down', { containers: { app: { limits: amounts('100m', '64Mi'), requests: smallRequests } } }),
    ],
    expected: {
      'at first: pod memory.max': memory(64 + 120),
      'memory up: pod memory.max': memory(128 + 120),
      'CPU up: pod cpu.max': cpu(220),
      'all down: pod memory.max': memory(64 + 120),
      'all down: pod cpu.max': cpu(120),
    },
  },
  {
    title: 'A1: overhead, no CPU limit: memory limit and CPU request raised and lowered',
    pod: {
      runtimeClassName,
      containers: [container('app', { requests: smallRequests, limits: amounts(undefined, '64Mi') })],
    },
    steps: [
      running('app'),
      ...resized('memory up', { containers: { app: limits(undefined, '128Mi') } }),
      ...resized('CPU request up', { containers: { app: requests('60m') } }),
      ...resized('CPU request down', { containers: { app: requests('20m') } }),
      ...resized('memory down', { containers: { app: limits(undefined, '64Mi') } }),
    ],
    expected: {
      'memory up: pod memory.max': memory(128 + 120),
      'memory up: pod cpu.max': 'max 100000',
      'memory down: pod memory.max': memory(64 + 120),
    },
  },
  {
    title: 'A1: overhead, no memory limit: CPU limit and request raised and lowered',
    pod: {
      runtimeClassName,
      containers: [container('app', { requests: smallRequests, limits: amounts('100m') })],
    },
    steps: [
      running('app'),
      ...resized('limit up', { containers: { app: limits('200m') } }),
      ...resized('request up', { containers: { app: requests('60m') } }),
      ...resized('both down', { containers: { app: { limits: amounts('100m'), requests: amounts('20m') } } }),
    ],
    expected: {
      'limit up: pod cpu.max': cpu(220),
      'limit up: pod memory.max': 'max',
      'both down: pod cpu.max': cpu(120),
    },
  },
  {
    title: 'A1: overhead, no memory limit: CPU lowered alone',
    pod: {
      runtimeClassName,
      containers: [container('app', { requests: amounts('60m', '32Mi'), limits: amounts('200m') })],
    },
    steps: [
      running('app'),
      observe('at first'),
      ...resized('request down', { containers: { app: requests('20m') } }),
      ...resized('limit down', { containers: { app: limits('100m') } }),
    ],
    expected: { 'at first: pod cpu.max': cpu(220), 'limit down: pod cpu.max': cpu(120) },
  },
  {
    title: 'A1: overhead, requests only: raised and lowered',
    pod: { runtimeClassName, containers: [container('app', { requests: smallRequests })] },
    steps: [
      running('app'),
      ...resized('up', { containers: { app: requests('60m', '64Mi') } }),
      ...resized('down', { containers: { app: requests('20m', '32Mi') } }),
    ],
    expected: { 'up: pod cpu.max': 'max 100000', 'up: pod memory.max': 'max' },
  },
  {
    title: 'A1: overhead, pod-level memory limit: raised and lowered',
    pod: {
      runtimeClassName,
      resources: { requests: amounts('20m', '64Mi'), limits: amounts(undefined, '128Mi') },
      containers: [container('app', { requests: smallRequests })],
    },
    steps: [
      running('app'),
      ...resized('up', { pod: limits(undefined, '192Mi') }),
      ...resized('down', { pod: limits(undefined, '128Mi') }),
    ],
    expected: { 'up: pod memory.max': memory(192 + 120), 'down: pod memory.max': memory(128 + 120) },
  },
];
