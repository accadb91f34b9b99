import { type WeightFormula, weightOfShares } from '../../src/cgroups/values/conversions.ts';
import { cpuShares } from '../../src/core/quantities/numbers.ts';
import { decode, encode } from '../../src/runtime/codec.ts';
import type { Messages, Partially } from '../../src/runtime/messages.ts';
import { containerId, type FakeRuntime, SANDBOX } from './fake-runtime.ts';

/**
 * A runtime with a store, like containerd: an update is merged into the stored values, and all of them are written to
 * the cgroup, swap before memory and `unified` last, as runc does. Memory without swap means no swap.
 */
export class FakeStoringRuntime {
  readonly #runtime: FakeRuntime;
  readonly #stored = new Map<string, Messages['LinuxContainerResources']>();
  /** The updates that the shim has requested. */
  readonly asked: Messages['LinuxContainerResources'][] = [];
  /** How the runtime converts shares. */
  formula: WeightFormula = 'new';
  /** An NRI plugin: returns the update that the runtime stores and applies. Throws to reject the update. */
  plugin: (id: string, linux: Messages['LinuxContainerResources']) => Messages['LinuxContainerResources'] = (
    _,
    linux,
  ) => linux;

  constructor(runtime: FakeRuntime) {
    this.#runtime = runtime;
    runtime.wrapResponder('ContainerStatus', (request, before) => {
      const { container_id } = decode('ContainerStatusRequest', request);
      const linux = this.#stored.get(container_id);
      if (linux === undefined) return before(request);
      const index = Number(container_id[0]);
      return encode('ContainerStatusResponse', {
        status: { id: container_id, metadata: { name: `c${index}` }, state: 1, resources: { linux } },
        info: { info: JSON.stringify({ sandboxID: SANDBOX, pid: 100 + index }) },
      });
    });
    runtime.on('UpdateContainerResources', (request) => {
      const { container_id, linux } = runtime.decodeUpdate(request);
      if (linux !== null) this.asked.push(linux);
      this.update(container_id, linux);
      return Buffer.alloc(0);
    });
  }

  /** A container that was created with these values. */
  create(
    index: number,
    linux: Partially<Messages['LinuxContainerResources']>,
    files: Readonly<Record<string, string>> = {},
  ): void {
    const id = containerId(index);
    for (const [file, content] of Object.entries({ 'memory.swap.max': 'max', ...files }))
      this.#runtime.writeFile(`/kubepods/pod1/${id}`, file, content);
    this.#runtime.node.registry.learnContainer({ containerId: id, sandboxId: SANDBOX, name: `c${index}` });
    this.#stored.set(id, decode('LinuxContainerResources', Buffer.alloc(0)));
    this.update(id, decode('LinuxContainerResources', encode('LinuxContainerResources', linux)));
  }

  stored(index: number): Messages['LinuxContainerResources'] {
    return this.#stored.get(containerId(index))!;
  }

  update(id: string, given: Messages['LinuxContainerResources'] | null): void {
    const before = this.#stored.get(id)!;
    const linux = given && this.plugin(id, given);
    const set = Object.fromEntries(Object.entries(linux ?? {}).filter(([, value]) => value !== 0n && value !== ''));
    const swap = linux?.memory_swap_limit_in_bytes || linux?.memory_limit_in_bytes || before.memory_swap_limit_in_bytes;
    const after = {
      ...before,
      ...set,
      memory_swap_limit_in_bytes: swap,
      hugepage_limits: [...before.hugepage_limits, ...(linux?.hugepage_limits ?? [])],
      unified: { ...before.unified, ...linux?.unified },
    };
    this.#stored.set(id, after);
    this.#write(id, after);
  }

  #write(id: string, linux: Messages['LinuxContainerResources']): void {
    const put = (file: string, value: string | bigint): void =>
      this.#runtime.writeFile(`/kubepods/pod1/${id}`, file, String(value));
    const { memory_limit_in_bytes: memory, memory_swap_limit_in_bytes: swap, cpu_quota } = linux;
    if (swap !== 0n) put('memory.swap.max', swap === -1n ? 'max' : swap - memory);
    if (memory !== 0n) put('memory.max', memory === -1n ? 'max' : memory);
    if (cpu_quota !== 0n) put('cpu.max', `${cpu_quota === -1n ? 'max' : cpu_quota} ${linux.cpu_period}`);
    if (linux.cpu_shares !== 0n)
      put('cpu.weight', String(weightOfShares(cpuShares(Number(linux.cpu_shares)), this.formula)));
    if (linux.cpuset_cpus !== '') put('cpuset.cpus', linux.cpuset_cpus);
    if (linux.cpuset_mems !== '') put('cpuset.mems', linux.cpuset_mems);
    // crun applies these limits. runc ignores them.
    for (const { page_size, limit } of linux.hugepage_limits)
      put(`hugetlb.${page_size}.max`, limit === 2n ** 64n - 1n ? 'max' : limit);
    for (const [file, value] of Object.entries(linux.unified)) put(file, value);
  }
}
