import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { writeSetting } from '../../support/cri/pod-cgroup.ts';
import { miText } from '../../support/quantities/mebibytes.ts';
import { resizePod, resources, type Scenario, SLEEP, twoContainers, withoutVolume } from '../scenario.ts';
import {
  cachedFile,
  endTenant,
  freeMemory,
  hideFromRunc,
  holdMemory,
  holdPageCache,
  noneDeferred,
  showToRunc,
} from './circumstances.ts';

const limits = (memory: string, cpu: string, request?: string) => ({
  limits: { memory, cpu },
  ...(request !== undefined && { requests: { cpu: request } }),
});

const volumes = (...sizes: readonly number[]) => ({
  ...withoutVolume,
  volumes: sizes.map((size, index) => ({ name: `v${index}`, size: size * MiB })),
});

/** Resets the volumes to these sizes. */
const volumesBack =
  (...sizes: readonly number[]): NonNullable<Scenario['reset']> =>
  (stage) =>
    resizePod(stage, { volumes: Object.fromEntries(sizes.map((size, index) => [`v${index}`, `${size}Mi`])) }).then(
      () => undefined,
    );

/** memory.high as kubelet derives it from a request and a limit in miText. */
const high = (request: number, limit: number): string =>
  String(Math.floor(((request + (limit - request) * 0.9) * MiB) / 4096) * 4096);

/** A pod of a kubelet with memory QoS: its first container requests 32 MiB. */
const withMemoryQos: Scenario['pod'] = {
  containers: withoutVolume.containers.map((container, index) => {
    if (index > 0) return container;
    const unified = { 'memory.high': high(32, 64), 'memory.min': '0', 'memory.low': miText(32) };
    return { ...container, resources: { ...container.resources, unified } };
  }),
};

export const wholePod: readonly Scenario[] = [
  {
    name: 'ResizePod up, with a volume that follows',
    pod: twoContainers,
    act: (stage) =>
      resizePod(stage, { containers: { a: limits('128Mi', '200m', '150m'), b: limits('160Mi', '300m') } }),
    target: {
      'pod memory.max': miText(288),
      'pod cpu.max': '50000 100000',
      'pod cpu.weight': '14',
      'a memory.max': miText(128),
      'a cpu.max': '20000 100000',
      'a cpu.weight': '6',
      'b memory.max': miText(160),
      'b cpu.max': '30000 100000',
      'volume cache': miText(288),
    },
  },
  {
    name: 'ResizePod down, with a volume that follows',
    everyRecovery: true,
    pod: twoContainers,
    act: (stage) =>
      resizePod(stage, { containers: { a: limits('48Mi', '50m', '50m'), b: limits('96Mi', '100m', '100m') } }),
    target: {
      'pod memory.max': miText(144),
      'pod cpu.max': '15000 100000',
      'pod cpu.weight': '6',
      'a memory.max': miText(48),
      'a cpu.max': '5000 100000',
      'a cpu.weight': '2',
      'b memory.max': miText(96),
      'b cpu.max': '10000 100000',
      'b cpu.weight': '4',
      'volume cache': miText(144),
    },
  },
  {
    name: 'ResizePod up, with a setting and swap that are newer in the kernel than in the runtime',
    pod: {
      containers: withoutVolume.containers.map((container) => ({
        ...container,
        resources: { ...container.resources, unified: { 'memory.low': miText(4), 'memory.swap.max': miText(8) } },
      })),
    },
    setUp({ pod }) {
      for (const file of ['memory.low', 'memory.swap.max'] as const)
        writeSetting(pod.containerCgroup('a'), file, 12 * MiB);
      return Promise.resolve(undefined);
    },
    act: (stage) => resizePod(stage, { containers: { a: limits('128Mi', '') } }),
    target: { 'pod memory.max': miText(256), 'a memory.max': miText(128) },
  },
  {
    name: 'ResizePod up, with what memory QoS has derived',
    pod: withMemoryQos,
    act: (stage) => resizePod(stage, { containers: { a: limits('128Mi', '') } }),
    target: { 'pod memory.max': miText(256), 'a memory.max': miText(128), 'a memory.high': high(32, 128) },
  },
  {
    name: 'ResizePod down, with what memory QoS has derived',
    everyRecovery: true,
    pod: withMemoryQos,
    act: (stage) => resizePod(stage, { containers: { a: limits('48Mi', '') } }),
    target: { 'pod memory.max': miText(176), 'a memory.max': miText(48), 'a memory.high': high(32, 48) },
  },
  {
    name: 'ResizePod memory up, CPU down',
    pod: withoutVolume,
    act: (stage) => resizePod(stage, { containers: { a: limits('128Mi', '50m', '50m') } }),
    target: {
      'pod memory.max': miText(256),
      'pod cpu.max': '25000 100000',
      'pod cpu.weight': '10',
      'a memory.max': miText(128),
      'a cpu.max': '5000 100000',
      'a cpu.weight': '2',
    },
  },
  {
    name: 'ResizePod, memory moves between three containers',
    pod: {
      containers: [...withoutVolume.containers, { name: 'c', command: SLEEP, resources: resources(96, 100, 100) }],
    },
    act: (stage) =>
      resizePod(stage, { containers: { a: limits('128Mi', ''), b: limits('96Mi', ''), c: limits('64Mi', '') } }),
    target: { 'a memory.max': miText(128), 'b memory.max': miText(96), 'c memory.max': miText(64) },
  },
  {
    name: 'ResizePod, limits of the pod alone',
    pod: twoContainers,
    act: (stage) => resizePod(stage, { resources: limits('256Mi', '500m') }),
    target: {
      'pod memory.max': miText(256),
      'pod cpu.max': '50000 100000',
      'volume cache': miText(256),
    },
  },
  {
    name: 'ResizePod, requests alone',
    pod: withoutVolume,
    act: (stage) => resizePod(stage, { containers: { a: limits('', '', '50m'), b: limits('', '', '200m') } }),
    target: { 'pod cpu.weight': '10', 'a cpu.weight': '2', 'b cpu.weight': '8' },
  },
  {
    name: 'ResizePod, volumes grow',
    pod: volumes(32, 48),
    act: (stage) => resizePod(stage, { volumes: { v0: '64Mi', v1: '80Mi' } }),
    target: { 'volume v0': miText(64), 'volume v1': miText(80) },
    allocated: { v0: 64 * MiB, v1: 80 * MiB },
    reset: volumesBack(32, 48),
  },
  {
    name: 'ResizePod, volumes shrink',
    pod: volumes(32, 48),
    act: (stage) => resizePod(stage, { volumes: { v0: '16Mi', v1: '24Mi' } }),
    target: { 'volume v0': miText(16), 'volume v1': miText(24) },
    allocated: { v0: 16 * MiB, v1: 24 * MiB },
    reset: volumesBack(32, 48),
  },
  {
    name: 'ResizePod, one volume grows, one shrinks, memory down',
    everyRecovery: true,
    pod: volumes(32, 48),
    act: (stage) => resizePod(stage, { containers: { b: limits('96Mi', '') }, volumes: { v0: '64Mi', v1: '24Mi' } }),
    target: {
      'pod memory.max': miText(160),
      'b memory.max': miText(96),
      'volume v0': miText(64),
      'volume v1': miText(24),
    },
    allocated: { v0: 64 * MiB, v1: 24 * MiB },
    reset: volumesBack(32, 48),
  },
  {
    name: 'ResizePod, page cache to reclaim',
    pod: withoutVolume,
    setUp: cachedFile('a'),
    tearDown: endTenant,
    prepare: holdPageCache(48),
    act: (stage) => resizePod(stage, { containers: { a: limits('32Mi', '') } }),
    target: { 'pod memory.max': miText(160), 'a memory.max': miText(32) },
  },
  {
    name: 'ResizePod, rejected',
    pod: withoutVolume,
    setUp: holdMemory('b', 48),
    act: (stage) => resizePod(stage, { containers: { a: limits('128Mi', ''), b: limits('32Mi', '') } }),
    rejected: /cannot be reclaimed/,
    target: {},
    pointless: true,
  },
  {
    name: 'ResizePod, the runtime rejects the second container',
    pod: withoutVolume,
    act: async (stage) => {
      hideFromRunc(stage, 'b');
      await resizePod(stage, { containers: { a: limits('128Mi', '200m'), b: limits('160Mi', '300m', '300m') } });
    },
    after: (stage) => showToRunc(stage, 'b'),
    rejected: /UpdateContainerResources|does not exist|state/i,
    target: {},
  },
  {
    name: 'ResizePod, a volume is filled before it shrinks',
    pod: volumes(32, 48),
    prepare: ({ pod }) => {
      writeFileSync(join(pod.volumePath('v1'), 'written'), '');
      return Promise.resolve();
    },
    act: async (stage) => {
      const { shim, pod } = stage;
      const fill = (): void => writeFileSync(join(pod.volumePath('v1'), 'written'), Buffer.alloc(26 * MiB));
      await Promise.all([
        resizePod(stage, { containers: { b: limits('96Mi', '100m', '100m') }, volumes: { v0: '16Mi', v1: '24Mi' } }),
        shim.halt('journal-write-after', fill),
      ]);
    },
    rejected: /stores \d+ bytes/,
    target: {},
  },
  {
    name: 'ResizePod, deferred until memory is free',
    pod: withoutVolume,
    prepare: holdMemory('b', 48),
    act: async (stage) => {
      const { resize } = await resizePod(stage, { containers: { b: limits('32Mi', '') }, defer: true });
      expect(resize?.state).toBe('DEFERRED');
      stage.answered();
      await freeMemory('b')(stage);
      await noneDeferred(stage, resize?.['id']);
    },
    async meanwhile(stage) {
      await freeMemory('b')(stage);
      await noneDeferred(stage);
    },
    repeat: (stage) => resizePod(stage, { containers: { b: limits('32Mi', '') }, defer: true }),
    target: { 'pod memory.max': miText(96), 'b memory.max': miText(32) },
  },
  {
    name: 'ResizePod, a dry run',
    pod: twoContainers,
    act: (stage) => resizePod(stage, { containers: { a: limits('128Mi', '200m') }, dry_run: true }),
    target: {},
    pointless: true,
  },
];
