import { RunningPod, createContainer } from '../../support/cri/pod.ts';
import { SLEEP, type Scenario, resources, withoutVolume } from '../scenario.ts';
import { miText } from '../../support/quantities/mebibytes.ts';

let made = 0;

export const restarted: readonly Scenario[] = [
  {
    name: 'a container restarts with larger limits (kubernetes 138760)',
    pod: withoutVolume,
    oneUse: true,
    async setUp({ direct, pod }) {
      await direct.call('StopContainer', { container_id: pod.id('a'), timeout: 0 });
      const left = new Map([...pod.containers].filter(([name]) => name !== 'a'));
      return new RunningPod(direct, pod.uid, pod.sandboxId, left, [], pod.qos, pod.config);
    },
    act: make,
    repeat: make,
    target: { 'pod memory.max': miText(256), 'pod cpu.max': '40000 100000' },
  },
];

/** Creates and starts another container each time, as kubelet does, also when the previous call had no answer. */
async function make({ shim, pod }: Parameters<Scenario['act']>[0]): Promise<void> {
  const spec = { name: 'a', attempt: (made += 1), command: SLEEP, resources: resources(128, 200, 100) };
  const container_id = await createContainer(shim.cri, pod, spec);
  await shim.cri.call('StartContainer', { container_id });
}
