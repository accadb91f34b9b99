import { updateContainer } from '../../../src/sandbox/operations/update-container.ts';
import { type FakeRuntime, containerId, containerUpdate } from '../fake-runtime.ts';

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
