import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { checkpointText, type WrittenPod } from '../checkpoint-text.ts';
import type { CriClient, Resources } from '../cri/client.ts';
import { KUBELET_ROOT, type RunningPod } from '../cri/pod.ts';

/** Memory limits of a pod in MiB: of its containers and of the pod itself (`level`). Absent means none. */
export interface PodMemory {
  readonly containers: Readonly<Record<string, number | undefined>>;
  readonly level?: number;
  /** The sizeLimits of memory-backed volumes, with the feature gate of KEP-6030. */
  readonly volumes?: Readonly<Record<string, number>>;
}

export const FILES = ['allocated_pods_state', 'actuated_pods_state'] as const;
export type FileName = (typeof FILES)[number];

export interface KubeletOptions {
  /** Whether kubelet informs the runtime of a pod's limits before it writes them (1.36) or after (1.33 to 1.35). */
  readonly informsRuntime: 'before' | 'after';
}

/** The result of a resize. */
export interface Actuation {
  /** From admission to the last call, in milliseconds. */
  readonly ms: number;
  readonly tries: number;
}

/**
 * kubelet's part of a resize (pkg/kubelet/allocation, and doPodResizeAction in pkg/kubelet/kuberuntime): it writes what
 * it admits, compares the new limits with the usage, and calls the runtime in its order. It writes the state files
 * after each call.
 */
export class Kubelet {
  readonly #allocated = new Map<string, PodMemory>();
  readonly #actuated = new Map<string, PodMemory>();
  #temporary = 0;

  constructor(
    private readonly cri: CriClient,
    private readonly options: KubeletOptions = { informsRuntime: 'before' },
  ) {}

  /** Registers a pod that runs with these limits. */
  runs({ uid }: Pick<RunningPod, 'uid'>, memory: PodMemory): void {
    this.#allocated.set(uid, memory);
    this.#actuated.set(uid, memory);
    this.write();
  }

  /**
   * Admits other limits, and writes them before any call. If the limit of a container is lowered, the first try
   * requests the usage and ends there. {@link sync} is the next try.
   */
  admit(pod: RunningPod, memory: PodMemory): void {
    const { uid } = pod;
    this.#allocated.set(uid, memory);
    this.write('allocated_pods_state');
    const from = this.#actuated.get(uid);
    if (from !== undefined && containersToUpdate(from, memory).some(({ isLower }) => isLower)) this.ask(pod);
  }

  /** Requests the usage, as each try of 1.34 and later does to compare it with the limits. */
  ask({ sandboxId }: RunningPod): void {
    // The answer may come after the end of the shim or the test.
    this.cri.call('ListContainerStats', { filter: { pod_sandbox_id: sandboxId } }).catch(() => undefined);
  }

  forget({ uid }: RunningPod): void {
    this.#allocated.delete(uid);
    this.#actuated.delete(uid);
    this.write();
  }

  /** Writes both files again, or the given ones. */
  write(...names: readonly FileName[]): void {
    for (const name of names.length === 0 ? FILES : names) this.replace(name, this.textOf(name));
  }

  textOf(name: FileName): string {
    const pods = name === 'allocated_pods_state' ? this.#allocated : this.#actuated;
    return checkpointText(Object.fromEntries([...pods].map(([uid, memory]) => [uid, written(memory)])));
  }

  /** Replaces a file as kubelet's file store does: a hidden file with another name, mode 0600, and a rename. */
  replace(name: FileName, text: string): void {
    const temporary = join(KUBELET_ROOT, `.${(this.#temporary += 1)}`);
    writeFileSync(temporary, text, { mode: 0o600 });
    renameSync(temporary, join(KUBELET_ROOT, name));
  }

  /** Admits limits and retries until they are applied. Rejects with the last error after the time limit. */
  async resize(pod: RunningPod, memory: PodMemory, limitMs: number, pauseMs = 100): Promise<Actuation> {
    this.admit(pod, memory);
    const start = performance.now();
    for (let tries = 1; ; tries += 1) {
      try {
        await this.sync(pod);
        return { ms: Math.round(performance.now() - start), tries };
      } catch (error) {
        if (performance.now() - start > limitMs) throw error;
        // kubelet retries on a timer, too.
        await new Promise((resolve) => setTimeout(resolve, pauseMs));
      }
    }
  }

  /** Tries once. Rejects with kubelet's refusal, or with the error of the runtime. */
  async sync(pod: RunningPod): Promise<void> {
    const { uid } = pod;
    const [to, from] = [this.#allocated.get(uid), this.#actuated.get(uid)];
    if (to === undefined || from === undefined) throw new Error(`no pod ${uid}`);
    const [now, then] = [limitOf(pod), podLimit(to) ?? limitOf(pod)];
    const order = containersToUpdate(from, to);
    this.#validate(pod, { now, then }, order);
    if (then > now) await this.#setPod(pod, then);
    for (const { name, limit } of order) {
      await this.cri.updateContainer(pod.id(name), { memory_limit_in_bytes: limit * MiB });
      const done = this.#actuated.get(uid) ?? from;
      this.#actuated.set(uid, { ...done, containers: { ...done.containers, [name]: limit } });
      this.write('actuated_pods_state');
    }
    if (then < now) await this.#setPod(pod, then);
    this.#actuated.set(uid, to);
    this.write('actuated_pods_state');
  }

  /** The check of 1.34 and later before any call. */
  #validate(pod: RunningPod, { now, then }: { now: number; then: number }, order: readonly Update[]): void {
    const refuse = (subject: string, limit: number, usage: number): void => {
      if (limit > usage) return;
      const text = `cannot decrease memory limits: attempting to set ${subject} memory limit (${limit}) below current usage (${usage})`;
      throw new Error(text);
    };
    if (then < now) refuse('pod', then, Number(pod.read('memory.current')));
    for (const { name, limit, isLower } of order)
      if (isLower) refuse(`container "${name}"`, limit * MiB, Number(pod.read('memory.current', name)));
  }

  async #setPod(pod: RunningPod, limit: number): Promise<void> {
    const inform = (): Promise<object> => {
      const resources: Resources = { memory_limit_in_bytes: limit };
      return this.cri.updatePod(pod.sandboxId, resources, { overhead: {} });
    };
    if (this.options.informsRuntime === 'before') await inform();
    pod.write({ 'memory.max': String(limit) });
    // kubelet only logs an error.
    if (this.options.informsRuntime === 'after') await inform().catch(() => undefined);
  }
}

export const removeFiles = (): void => {
  for (const name of FILES) rmSync(join(KUBELET_ROOT, name), { force: true });
};

interface Update {
  readonly name: string;
  /** In MiB. */
  readonly limit: number;
  readonly isLower: boolean;
}

/** Containers that are lowered come first. */
function containersToUpdate(from: PodMemory, to: PodMemory): readonly Update[] {
  const updates = Object.entries(to.containers).flatMap(([name, limit]): Update[] => {
    const before = from.containers[name];
    return limit === undefined || limit === before ? [] : [{ name, limit, isLower: limit < (before ?? Infinity) }];
  });
  return [...updates.filter(({ isLower }) => isLower), ...updates.filter(({ isLower }) => !isLower)];
}

/** In bytes; undefined if kubelet sets no limit. */
function podLimit({ containers, level }: PodMemory): number | undefined {
  if (level !== undefined) return level * MiB;
  const limits = Object.values(containers);
  return limits.reduce<number | undefined>(
    (sum, limit) => (sum === undefined || limit === undefined ? undefined : sum + limit * MiB),
    0,
  );
}

function limitOf(pod: RunningPod): number {
  const text = readFileSync(join(pod.cgroup, 'memory.max'), 'utf8').trim();
  return text === 'max' ? Infinity : Number(text);
}

function written({ containers, level, volumes = {} }: PodMemory): WrittenPod {
  const resources = (limit: number | undefined) =>
    limit === undefined ? {} : { limits: { memory: `${limit}Mi` }, requests: { memory: `${limit}Mi` } };
  return {
    ContainerResources: Object.fromEntries(Object.entries(containers).map(([name, limit]) => [name, resources(limit)])),
    PodLevelResources: level === undefined ? null : resources(level),
    EmptyDirVolumeLimits: Object.fromEntries(Object.entries(volumes).map(([name, size]) => [name, `${size}Mi`])),
  };
}
