import { bytes } from '../../src/core/quantities/numbers.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { encode } from '../../src/runtime/codec.ts';
import { declarePod } from '../../src/sandbox/pods/declare-pod.ts';
import type { DeclaredPod } from '../../src/sandbox/pods/declared-pod.ts';
import { noPodSpecs, type PodSpecs } from '../../src/sandbox/pods/pod-spec.ts';
import { FakeRuntime, SANDBOX } from './fake-runtime.ts';

export const CREATED = 0;
export const RUNNING = 1;
export const EXITED = 2;
export const PRE_STOP = { 'io.kubernetes.container.preStopHandler': '{"exec":{}}' };

/** A container in the runtime. The limit is in mebibytes; 0 means none. */
interface Given {
  readonly name: string;
  readonly state: number;
  readonly limit?: number;
  /** Thousandths of a CPU. */
  readonly milliCpu?: number;
  readonly exitCode?: number;
  readonly labels?: Record<string, string>;
  readonly annotations?: Record<string, string>;
}

/** A runtime whose containers, with kubelet's state and a spec, say what a pod declares. */
export class FakeDeclaringRuntime {
  private constructor(readonly runtime: FakeRuntime) {}

  static async start(): Promise<FakeDeclaringRuntime> {
    return new FakeDeclaringRuntime(await FakeRuntime.start());
  }

  close(): Promise<void> {
    return this.runtime.close();
  }

  /** Sets the runtime's containers, in the order of their creation. */
  has(...containers: readonly Given[]): void {
    const ids = containers.map(({ name }, index) => `${name}-${index}`);
    this.runtime.on('ListContainers', () =>
      encode('ListContainersResponse', {
        // The backend lists them in any order.
        containers: containers
          .map(({ name, state, labels = {}, annotations = {} }, index) => ({
            id: ids[index]!,
            pod_sandbox_id: SANDBOX,
            metadata: { name },
            state,
            labels,
            annotations,
            created_at: BigInt(index + 1),
          }))
          .reverse(),
      }),
    );
    for (const [index, { name, state, limit = 0, milliCpu = 0, exitCode = 0 }] of containers.entries())
      this.runtime.describeContainer(ids[index]!, {
        metadata: { name },
        state,
        exit_code: exitCode,
        resources: {
          linux: {
            memory_limit_in_bytes: BigInt(limit * MiB),
            ...(milliCpu > 0 && { cpu_quota: BigInt(milliCpu * 50), cpu_period: 50_000n }),
          },
        },
      });
  }

  kubeletAdmitted(limits: Readonly<Record<string, number>>, level?: number): void {
    const containers = new Map(Object.entries(limits).map(([name, size]) => [name, { memory: bytes(size * MiB) }]));
    const pod = level === undefined ? undefined : { memory: bytes(level * MiB) };
    this.runtime.allocated.set('uid-1', { containers, pod, isComplete: true });
  }

  async declared(specs: PodSpecs = noPodSpecs): Promise<DeclaredPod> {
    const { registry, kubelet } = this.runtime.node;
    const pod = await registry.pod(SANDBOX);
    return declarePod({ registry, kubelet, specs }, pod!);
  }
}

/** Returns a line for each container. */
export const lines = ({ containers }: DeclaredPod): string[] =>
  containers.map(({ name, kind, state, limits, mayBeInit, isUncounted, isFixed }) =>
    [
      `${name} ${kind} ${state}`,
      limits && (limits.memory === undefined ? 'no limit' : `${limits.memory / MiB}`),
      mayBeInit && 'may be init',
      isUncounted && 'uncounted',
      isFixed && 'fixed',
    ]
      .filter(Boolean)
      .join(', '),
  );
