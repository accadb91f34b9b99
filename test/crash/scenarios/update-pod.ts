import { MiB } from '../../../src/core/quantities/sizes.ts';
import { writeSetting } from '../../support/cri/pod-cgroup.ts';
import { miText } from '../../support/quantities/mebibytes.ts';
import { resources, type Scenario, type Stage, twoContainers, updateContainer, withoutVolume } from '../scenario.ts';

const updatePod = ({ shim, pod }: Stage, linux: object): Promise<object> => shim.cri.updatePod(pod.sandboxId, linux);

/** A pod with a volume of half the pod limit, by annotation. */
const percentVolume = {
  ...twoContainers,
  volumes: [{ name: 'cache', size: 96 * MiB }],
  annotations: { 'volume.cri-resize-shim.io/cache': '50%' },
};

/** Makes kubelet's calls in order, each after the answer to the previous one. */
const inTurn =
  (...calls: readonly ((stage: Stage) => Promise<object>)[]): Scenario['act'] =>
  async (stage) => {
    for (const call of calls) {
      await call(stage);
      stage.answered();
    }
  };

const calls: readonly Scenario[] = [
  // Two nodes share the scenarios. This scenario takes longest, and its position assigns it to the node with less work.
  {
    name: 'kubelet lowers the containers, then the pod, with a volume of half the pod limit',
    pod: percentVolume,
    act: inTurn(
      (stage) => updateContainer(stage, 'a', resources(48, 50, 50)),
      (stage) => updateContainer(stage, 'b', resources(96, 100, 100)),
      (stage) => updatePod(stage, resources(144, 150, 150)),
    ),
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
      'volume cache': miText(72),
    },
  },
  {
    name: 'kubelet raises the pod, then its containers, with a volume of half the pod limit',
    pod: percentVolume,
    act: inTurn(
      (stage) => updatePod(stage, resources(288, 500, 450)),
      (stage) => updateContainer(stage, 'a', resources(128, 200, 150)),
      (stage) => updateContainer(stage, 'b', resources(160, 300, 300)),
    ),
    target: {
      'pod memory.max': miText(288),
      'pod cpu.max': '50000 100000',
      'pod cpu.weight': '18',
      'a memory.max': miText(128),
      'a cpu.max': '20000 100000',
      'a cpu.weight': '6',
      'b memory.max': miText(160),
      'b cpu.max': '30000 100000',
      'b cpu.weight': '12',
      'volume cache': miText(144),
    },
  },
  {
    name: 'UpdatePodSandboxResources, swap, unified keys and a limit',
    pod: withoutVolume,
    act: (stage) =>
      updatePod(stage, {
        memory_limit_in_bytes: 256 * MiB,
        memory_swap_limit_in_bytes: 288 * MiB,
        unified: { 'memory.high': miText(240), 'memory.low': miText(32), 'memory.min': miText(16) },
      }),
    target: {
      'pod memory.max': miText(256),
      'pod memory.swap.max': miText(32),
      'pod memory.high': miText(240),
      'pod memory.low': miText(32),
      'pod memory.min': miText(16),
    },
    reset({ pod }) {
      for (const file of ['memory.low', 'memory.min'] as const) writeSetting(pod.cgroup, file, 0);
      for (const file of ['memory.high', 'memory.swap.max'] as const) writeSetting(pod.cgroup, file, 'max');
    },
  },
];

export const podItself: readonly Scenario[] = calls.map((scenario) => ({ ...scenario, repeat: scenario.act }));
