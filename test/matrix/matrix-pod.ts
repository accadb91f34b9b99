import type { CriClient } from '../support/cri/client.ts';
import { type QosClass, type RunningPod, runPod } from '../support/cri/pod.ts';
import type { ResizeClient } from '../support/resize-api-client.ts';
import { type PodAmounts, amountsOf } from './amounts.ts';
import type { MatrixCase } from './cases.ts';
import { PERIOD, type PodValues, containerResources, podValues, podWeight, qosClass } from './kubelet-values.ts';
import { assertStartedInOrder } from './start-order.ts';

/** What a pod is made of, and what it asks for at first. */
export type PodShape = Pick<MatrixCase, 'containers' | 'start'>;

/** To the shim: as a CRI client and by its resize API. */
export interface Clients {
  readonly cri: CriClient;
  readonly api: ResizeClient;
}

/** A pod, made as kubelet makes it. */
export class MatrixPod {
  /** What ResizePod was last asked for as requests of memory, by container, in MiB: only the shim keeps them. */
  readonly requested = new Map<string, number>();

  private constructor(
    readonly origin: PodShape,
    readonly qos: QosClass,
    readonly running: RunningPod,
    readonly api: ResizeClient,
  ) {}

  static async run({ cri, api }: Clients, origin: PodShape): Promise<MatrixPod> {
    const { containers, start } = origin;
    const qos = qosClass(containers, start);
    const { memory, quota, shares } = podValues(containers, start, qos);
    const running = await runPod(cri, {
      name: 'matrix',
      qos,
      podMemory: memory ?? 'max',
      podCpu: `${quota ?? 'max'} ${PERIOD}`,
      podShares: shares,
      containers: containers.map(({ name, role }) => ({
        name,
        resources: containerResources(amountsOf(start, name), qos),
        ...(role === 'init' ? { command: ['true'], init: true } : { command: ['sleep', '1000000'] }),
      })),
    });
    await assertStartedInOrder(running, containers);
    return new MatrixPod(origin, qos, running, api);
  }

  /** The pod's own values as kubelet has them for what its containers ask for. */
  values(amounts: PodAmounts): PodValues {
    return podValues(this.origin.containers, amounts, this.qos);
  }

  /** Gives the pod's cgroup kubelet's values for the start, whatever a way has made of them. */
  reset(): void {
    const { memory, quota, shares } = this.values(this.origin.start);
    this.running.write({
      'memory.max': String(memory ?? 'max'),
      'cpu.max': `${quota ?? 'max'} ${PERIOD}`,
      'cpu.weight': String(podWeight(shares)),
    });
  }
}
