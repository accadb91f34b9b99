import { MiB } from '../../../src/core/quantities/sizes.ts';
import { miText } from '../../support/quantities/mebibytes.ts';
import { resources, type Scenario, twoContainers, updateContainer, withoutVolume } from '../scenario.ts';
import { cachedFile, endTenant, holdPageCache } from './circumstances.ts';

const raised = { 'a memory.max': miText(128), 'a cpu.max': '20000 100000', 'a cpu.weight': '6' };
const lowered = { 'a memory.max': miText(48), 'a cpu.max': '5000 100000', 'a cpu.weight': '2' };

const unifiedKeys = (swap: number, high: number, low: number) => ({
  'memory.swap.max': miText(swap),
  'memory.high': miText(high),
  'memory.low': miText(low),
  'memory.min': miText(low / 2),
  'memory.oom.group': low === 0 ? '0' : '1',
});

/** Two containers, the first of which has these settings. */
const withUnified = (unified: Readonly<Record<string, string>>) => {
  const [first, ...others] = withoutVolume.containers;
  return { containers: [{ ...first!, resources: { ...first!.resources, unified } }, ...others] };
};

const calls: readonly Scenario[] = [
  {
    name: 'UpdateContainerResources up, pod limit tight, with a volume that follows',
    pod: twoContainers,
    act: (stage) => updateContainer(stage, 'a', resources(128, 200, 150)),
    target: {
      ...raised,
      'pod memory.max': miText(256),
      'pod cpu.max': '40000 100000',
      'volume cache': miText(256),
    },
  },
  {
    name: 'UpdateContainerResources down, pod limit tight, with a volume that follows',
    pod: twoContainers,
    act: (stage) => updateContainer(stage, 'a', resources(48, 50, 50)),
    target: {
      ...lowered,
      'pod memory.max': miText(176),
      'pod cpu.max': '25000 100000',
      'volume cache': miText(176),
    },
  },
  {
    name: 'UpdateContainerResources memory up, CPU down, pod limit tight',
    pod: withoutVolume,
    act: (stage) => updateContainer(stage, 'a', resources(128, 50, 50)),
    target: {
      ...lowered,
      'a memory.max': miText(128),
      'pod memory.max': miText(256),
      'pod cpu.max': '25000 100000',
    },
  },
  {
    name: 'UpdateContainerResources up, above a loose pod limit',
    pod: { ...withoutVolume, podMemory: 224 * MiB, podCpu: '40000 100000' },
    act: (stage) => updateContainer(stage, 'a', resources(128, 200, 150)),
    target: { ...raised, 'pod memory.max': miText(256) },
  },
  {
    name: 'UpdateContainerResources down, in a pod without limits',
    pod: { ...withoutVolume, podMemory: 'max', podCpu: 'max 100000' },
    act: (stage) => updateContainer(stage, 'a', resources(48, 50, 50)),
    target: lowered,
  },
  {
    name: 'UpdateContainerResources, CPU alone',
    pod: withoutVolume,
    act: (stage) => updateContainer(stage, 'a', { cpu_quota: 20_000, cpu_period: 100_000, cpu_shares: 153 }),
    target: { 'a cpu.max': '20000 100000', 'a cpu.weight': '6', 'pod cpu.max': '40000 100000' },
  },
  {
    name: 'UpdateContainerResources without limits',
    pod: withoutVolume,
    act: (stage) => updateContainer(stage, 'a', { cpu_shares: 153 }),
    target: { 'a cpu.weight': '6' },
  },
  {
    name: 'UpdateContainerResources, page cache to reclaim',
    pod: withoutVolume,
    setUp: cachedFile('a'),
    tearDown: endTenant,
    prepare: holdPageCache(48),
    act: (stage) => updateContainer(stage, 'a', { memory_limit_in_bytes: 32 * MiB }),
    target: { 'a memory.max': miText(32), 'pod memory.max': miText(160) },
  },
  {
    name: 'UpdateContainerResources up, with swap, memory.high, memory.low and memory.min by keys of unified',
    everyRecovery: true,
    pod: withUnified(unifiedKeys(16, 60, 0)),
    act: (stage) => updateContainer(stage, 'a', { ...resources(128, 200, 150), unified: unifiedKeys(32, 120, 8) }),
    // A ResizePod, which gets the limits back, keeps the settings of others.
    reset: (stage) =>
      stage.direct.updateContainer(stage.pod.id('a'), { unified: unifiedKeys(16, 60, 0) }).then(() => undefined),
    target: {
      ...raised,
      'a memory.swap.max': miText(32),
      'a memory.high': miText(120),
      'a memory.low': miText(8),
      'a memory.min': miText(4),
      'a memory.oom.group': '1',
      'pod memory.max': miText(256),
      'pod cpu.max': '40000 100000',
    },
  },
  {
    name: 'UpdateContainerResources down, with a memory.high by a key of unified',
    pod: withUnified({ 'memory.high': miText(60) }),
    act: (stage) => updateContainer(stage, 'a', { ...resources(48, 50, 50), unified: { 'memory.high': miText(44) } }),
    reset: (stage) =>
      stage.direct.updateContainer(stage.pod.id('a'), { unified: { 'memory.high': miText(60) } }).then(() => undefined),
    target: {
      ...lowered,
      'a memory.high': miText(44),
      'pod memory.max': miText(176),
      'pod cpu.max': '25000 100000',
    },
  },
  {
    name: 'UpdateContainerResources, the runtime fails halfway',
    pod: twoContainers,
    // The kernel rejects this key, so the runtime fails after it has written other keys.
    act: (stage) => updateContainer(stage, 'a', { ...resources(128, 200, 150), unified: { 'memory.nonsense': '1' } }),
    rejected: /memory\.nonsense/,
    target: {},
  },
];

export const oneContainer: readonly Scenario[] = calls.map((scenario) => ({ ...scenario, repeat: scenario.act }));
