import type { CriClient } from '../support/cri/client.ts';
import { type QosClass, type RunningPod, runPod } from '../support/cri/pod.ts';
import type { ResizeClient } from '../support/resize-api/client.ts';
import type { MatrixCase, PodAmounts } from './cases.ts';
import { amountsOf, assertStartedInOrder } from './cases.ts';
import { containerResources, PERIOD, type PodValues, podValues, podWeight, qosClass } from './kubelet-values.ts';

/** The containers of a pod, and their first requests and limits. */
export type PodShape = Pick<MatrixCase, 'containers' | 'start'>;

/** Clients of the shim: one for CRI, one for its resize API. */
export interface Clients {
  readonly cri: CriClient;
  readonly api: ResizeClient;
}

/** The memory that the kernel reserves for each container, in MiB: its memory request, as it was last written. */
export type Reserved = ReadonlyMap<string, number>;

/** A pod that is created as kubelet creates it. */
export class MatrixPod {
  /** The memory that the kernel reserves now. */
  reserved: Reserved;
  /** The last memory requests in ResizePod by container, in MiB. Only the shim stores them. */
  readonly requested = new Map<string, number>();

  private constructor(
    readonly origin: PodShape,
    readonly qos: QosClass,
    readonly running: RunningPod,
    readonly api: ResizeClient,
  ) {
    this.reserved = this.requests(origin.start);
  }

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

  /** Returns the pod values that kubelet computes from the amounts of its containers. */
  values(amounts: PodAmounts): PodValues {
    return podValues(this.origin.containers, amounts, this.qos);
  }

  /** Returns the memory requests in the amounts of its containers, 0 for none. */
  requests(amounts: PodAmounts): Reserved {
    return new Map([...this.running.containers.keys()].map((name) => [name, requestOf(amounts, name)]));
  }

  /** Writes kubelet's values for the start to the pod's cgroup. */
  reset(): void {
    const { memory, quota, shares } = this.values(this.origin.start);
    this.running.write({
      'memory.max': String(memory ?? 'max'),
      'cpu.max': `${quota ?? 'max'} ${PERIOD}`,
      'cpu.weight': String(podWeight(shares)),
    });
  }
}

const requestOf = (amounts: PodAmounts, name: string): number => amountsOf(amounts, name).memory?.request ?? 0;
