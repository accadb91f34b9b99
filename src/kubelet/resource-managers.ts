import { join } from 'node:path';
import type { Counters, Log } from '../observe/index.ts';
import { CheckpointFile } from './checkpoint-file.ts';
import { type CpuAssignments, type MemoryAssignments, readCpuState, readMemoryState } from './manager-state.ts';

/** What kubelet's static CPU and memory managers have assigned to containers. */
export interface ResourceManagers {
  /** Returns the list of the CPUs that a container, or its pod, has for itself. Undefined if it shares its CPUs. */
  exclusiveCpus(podUid: string, container: string): string | undefined;
  /** Returns the list of the NUMA nodes that a container's memory is pinned to. Undefined if it is not. */
  memoryNodes(podUid: string, container: string): string | undefined;
}

/** Without kubelet's state nothing is assigned. */
export const noResourceManagers: ResourceManagers = { exclusiveCpus: () => undefined, memoryNodes: () => undefined };

/**
 * The state files of the managers, read when they are asked for and have changed. kubelet replaces them atomically. An unreadable file
 * counts as missing.
 */
export class ManagerFiles implements ResourceManagers {
  readonly #cpu: StateFile<CpuAssignments>;
  readonly #memory: StateFile<MemoryAssignments>;

  constructor(kubeletRoot: string, parts: ManagerFilesParts) {
    this.#cpu = new StateFile(kubeletRoot, 'cpu_manager_state', readCpuState, parts);
    this.#memory = new StateFile(kubeletRoot, 'memory_manager_state', readMemoryState, parts);
  }

  exclusiveCpus(podUid: string, container: string): string | undefined {
    return this.#cpu.read()?.of(podUid, container);
  }

  memoryNodes(podUid: string, container: string): string | undefined {
    return this.#memory.read()?.of(podUid, container);
  }
}

export interface ManagerFilesParts {
  readonly log: Log;
  readonly counters: Pick<Counters, 'foresight'>;
}

class StateFile<Content extends { readonly fault?: string }> {
  readonly #file: CheckpointFile;
  readonly #name: string;
  readonly #parse: (text: string) => Content | string;
  readonly #parts: ManagerFilesParts;
  #content: Content | undefined;

  constructor(folder: string, name: string, parse: (text: string) => Content | string, parts: ManagerFilesParts) {
    this.#file = new CheckpointFile(join(folder, name));
    this.#name = name;
    this.#parse = parse;
    this.#parts = parts;
  }

  read(): Content | undefined {
    const result = this.#file.result();
    if (result.kind === 'unchanged') return this.#content;
    const parsed = result.kind === 'text' ? this.#parse(result.text) : undefined;
    this.#content = typeof parsed === 'string' ? undefined : parsed;
    const unread = result.kind === 'unreadable' ? result.why : parsed;
    const fault = typeof unread === 'string' ? unread : unread?.fault;
    if (fault !== undefined) {
      this.#parts.counters.foresight('unreadable');
      this.#parts.log.warn({ file: this.#name, error: fault }, 'state of a kubelet manager not understood');
    }
    return this.#content;
  }
}
