import { microseconds } from '../../../src/core/quantities/numbers.ts';
import { resizePod } from '../../../src/sandbox/operations/resize-pod.ts';
import { updateContainer } from '../../../src/sandbox/operations/update-container.ts';
import type { DesiredPod, ResizeOutcome } from '../../../src/sandbox/plan/resize-request.ts';
import { containerId, containerUpdate, FakeRuntime, SANDBOX } from '../fake-runtime.ts';

export const cpu = (quota: number) => ({ quota: microseconds(quota), period: microseconds(100_000) });

/** A request for containers by name. */
export const desired = (containers: object, more: Partial<DesiredPod> = {}): DesiredPod => ({
  pod: {},
  containers: new Map(Object.entries(containers)),
  volumes: new Map(),
  ...more,
});

/** A pod of a fake runtime that ResizePod resizes. Its containers are c0, c1 and so on. */
export class ResizedPod {
  private constructor(readonly runtime: FakeRuntime) {}

  static async start(): Promise<ResizedPod> {
    const runtime = await FakeRuntime.start();
    runtime.applyUpdates();
    return new ResizedPod(runtime);
  }

  close(): Promise<void> {
    return this.runtime.close();
  }

  /** Creates the pod with these memory limits. */
  make(limit: string, containers: readonly number[]): void {
    this.runtime.makePod(limit, containers);
    for (const [index] of containers.entries())
      this.runtime.node.registry.learnContainer({
        containerId: containerId(index),
        sandboxId: SANDBOX,
        name: `c${index}`,
      });
  }

  resize(target: DesiredPod, options: object = {}): Promise<ResizeOutcome> {
    const deadline = performance.now() + 60_000;
    return resizePod(this.runtime.node, SANDBOX, target, { dryRun: false, deadline, ...options });
  }

  /** Returns the memory limits of the first two containers. */
  limits(): number[] {
    return [0, 1].map((index) => this.runtime.limitOf(index));
  }
}

/** The answer of the runtime to an update. */
export const ANSWER = Buffer.from('the answer of the runtime');

/** Updates of containers' memory limits by a fake runtime. */
export class ContainerUpdates {
  constructor(readonly runtime: FakeRuntime) {}

  /** Updates the memory limit of the container's cgroup, as the runtime does, and answers. */
  applies(memory: number, id = containerId(0)): Promise<Buffer> {
    if (memory > 0 && id !== containerId(7))
      this.runtime.writeFile(`/kubepods/pod1/${id}`, 'memory.max', String(memory));
    return Promise.resolve(ANSWER);
  }

  update(memory: number, forward = () => this.applies(memory), id = containerId(0)): Promise<Buffer> {
    const request = containerUpdate(id, { memory_limit_in_bytes: BigInt(memory) });
    return updateContainer(this.runtime.node, request, forward);
  }
}
