import { join } from 'node:path';
import { type Counters, type Log, messageOf } from '../core/index.ts';
import { asObject, type JsonObject } from './checkpoint.ts';
import { CheckpointFile } from './checkpoint-file.ts';

/** The policies of kubelet's CPU and memory managers, and the assignments of the static ones. */
export interface ResourceManagers {
  /** Whether the policy of the manager is `static`. */
  isStatic(resource: 'cpu' | 'memory'): boolean;
  /** Returns the list of CPUs exclusive to a container or its pod. Undefined if the container shares its CPUs. */
  exclusiveCpus(podUid: string, container: string): string | undefined;
  /** Returns the list of the NUMA nodes that a container's memory is pinned to. Undefined if it is not. */
  memoryNodes(podUid: string, container: string): string | undefined;
}

/** The empty state, used without kubelet's state files. */
export const noResourceManagers: ResourceManagers = {
  isStatic: () => false,
  exclusiveCpus: () => undefined,
  memoryNodes: () => undefined,
};

/**
 * The state files of the managers. A file is read on demand if it has changed. kubelet replaces the files atomically.
 * An unreadable file counts as missing.
 */
export class ManagerFiles implements ResourceManagers {
  readonly #cpu: StateFile<CpuAssignments>;
  readonly #memory: StateFile<MemoryAssignments>;

  constructor(kubeletRoot: string, options: ManagerFilesOptions) {
    this.#cpu = new StateFile(kubeletRoot, 'cpu_manager_state', readCpuState, options);
    this.#memory = new StateFile(kubeletRoot, 'memory_manager_state', readMemoryState, options);
  }

  isStatic(resource: 'cpu' | 'memory'): boolean {
    const state = resource === 'cpu' ? this.#cpu.read() : this.#memory.read();
    return state?.isStatic ?? false;
  }

  exclusiveCpus(podUid: string, container: string): string | undefined {
    return this.#cpu.read()?.of(podUid, container);
  }

  memoryNodes(podUid: string, container: string): string | undefined {
    return this.#memory.read()?.of(podUid, container);
  }
}

export interface ManagerFilesOptions {
  readonly log: Log;
  readonly counters: Pick<Counters, 'foresight'>;
}

class StateFile<Content extends { readonly fault?: string }> {
  readonly #file: CheckpointFile;
  #content: Content | undefined;

  constructor(
    folder: string,
    private readonly name: string,
    private readonly parse: (text: string) => Content | string,
    private readonly options: ManagerFilesOptions,
  ) {
    this.#file = new CheckpointFile(join(folder, name));
  }

  read(): Content | undefined {
    const result = this.#file.result();
    if (result.kind === 'unchanged') return this.#content;
    const parsed = result.kind === 'text' ? this.parse(result.text) : undefined;
    this.#content = typeof parsed === 'string' ? undefined : parsed;
    const unread = result.kind === 'unreadable' ? result.why : parsed;
    const fault = typeof unread === 'string' ? unread : unread?.fault;
    if (fault !== undefined) {
      this.options.counters.foresight('unreadable');
      this.options.log.warn({ file: this.name, error: fault }, 'state of a kubelet manager not understood');
    }
    return this.#content;
  }
}

/**
 * The checkpoints of kubelet's CPU manager (kubelet pkg/kubelet/cm/cpumanager/state/checkpoint.go,
 * CPUManagerCheckpoint) and memory manager (pkg/kubelet/cm/memorymanager/state/checkpoint.go, MemoryManagerCheckpoint).
 * Only the static policies assign anything. Since 1.37 the state is JSON in the string `data`, with the assignments of
 * pods; the same file has those of containers as before, for earlier kubelets. As with the other checkpoints of
 * kubelet, options of unknown shape are skipped and the checksums are not verified.
 */
interface ManagerState {
  /** Whether the policy is the static one. */
  readonly isStatic: boolean;
  /** Describes the entries that were not understood. Absent: none. */
  readonly fault?: string;
}

interface CpuAssignments extends ManagerState {
  /** Returns the CPUs of a container, or of its pod (gate PodLevelResourceManagers), as a list such as `0,2-3`. */
  of(podUid: string, container: string): string | undefined;
}

interface MemoryAssignments extends ManagerState {
  /** Returns the NUMA nodes of a container's memory, or of its pod's, as a list such as `0,1`. */
  of(podUid: string, container: string): string | undefined;
}

/** Parses `cpu_manager_state`. Returns a description of the fault if the content is invalid. Never throws. */
export const readCpuState = (text: string): CpuAssignments | string => readState(text, 'static', cpus);

/** Parses `memory_manager_state`. Returns a description of the fault if the content is invalid. Never throws. */
export const readMemoryState = (text: string): MemoryAssignments | string => readState(text, 'Static', nodes);

type Assignments = CpuAssignments & MemoryAssignments;

/** The format of a manager's assignments. */
interface Form {
  /** The property that contains a pod's assignment. A container's assignment is not nested in an object. */
  readonly ofPod: string;
  readonly isKnown: (assigned: unknown) => boolean;
  /** Returns the assignment as a list. Undefined if the assignment is empty or has an unknown shape. */
  readonly listOf: (assigned: unknown) => string | undefined;
}

function readState(text: string, policy: string, form: Form): Assignments | string {
  const file = parse(text);
  if (typeof file === 'string') return file;
  const inner = file['data'] === undefined || file['data'] === '' ? undefined : parse(file['data']);
  const state = typeof inner === 'object' ? inner : file;
  const fault = typeof inner === 'string' ? { fault: `"data": ${inner}` } : {};
  if (typeof state['policyName'] !== 'string') return 'it has no string "policyName"';
  if (state['policyName'] !== policy) return { isStatic: false, of: () => undefined, ...fault };
  const [containers, pods] = [asObject(state['entries']), asObject(state['podEntries'])];
  const unknown = countUnknown(state, form);
  return {
    isStatic: true,
    of: (podUid, container) =>
      form.listOf(own(asObject(own(containers, podUid)), container)) ??
      form.listOf(own(asObject(own(pods, podUid)), form.ofPod)),
    ...(unknown > 0 && { fault: `${unknown} values of an unknown shape` }),
    ...fault,
  };
}

function parse(text: unknown): JsonObject | string {
  try {
    return asObject(typeof text === 'string' ? JSON.parse(text) : undefined) ?? 'it is not a JSON object';
  } catch (error) {
    // The parser's message quotes the content, which may be arbitrarily long.
    return messageOf(error).slice(0, 200);
  }
}

/** Returns the number of values whose shape is not known. */
function countUnknown({ entries, podEntries }: JsonObject, { ofPod, isKnown }: Form): number {
  const byPod = valuesOf(entries).map((containers) => (isNothing(containers) ? [] : valuesOf(containers)));
  const ofPods = valuesOf(podEntries).map((pod) => (asObject(pod) === undefined ? UNKNOWN : asObject(pod)?.[ofPod]));
  return [...byPod.flat(), ...ofPods].filter((assigned) => !isNothing(assigned) && !isKnown(assigned)).length;
}

/** Marks a value that is not an object. */
const UNKNOWN = Symbol('of unknown shape');

/** Whether a value is absent. Go writes empty values as null, or omits them. */
const isNothing = (value: unknown): boolean => value === undefined || value === null;

const valuesOf = (value: unknown): readonly unknown[] => {
  if (isNothing(value)) return [];
  const object = asObject(value);
  return object === undefined ? [UNKNOWN] : Object.values(object);
};

/** Returns an own property. Names come from pods, and may equal the name of a property that every object inherits. */
const own = (object: JsonObject | undefined, name: string): unknown =>
  object !== undefined && Object.hasOwn(object, name) ? object[name] : undefined;

/** The CPU manager's format: a list of CPUs. */
const cpus: Form = {
  ofPod: 'cpuSet',
  isKnown: (assigned) => typeof assigned === 'string',
  listOf: (assigned) => (typeof assigned === 'string' && assigned !== '' ? assigned.slice(0, LONGEST) : undefined),
};

/** The memory manager's format: a list of blocks. Huge pages are assigned separately. */
const nodes: Form = {
  ofPod: 'memoryBlocks',
  isKnown: (assigned) =>
    Array.isArray(assigned) &&
    assigned
      .map(asObject)
      .every(
        (block) =>
          typeof block?.['type'] === 'string' &&
          Array.isArray(block['numaAffinity']) &&
          block['numaAffinity'].every(isNumber),
      ),
  listOf: (assigned) => {
    if (!Array.isArray(assigned)) return undefined;
    const affine = assigned
      .map(asObject)
      .filter((block) => block?.['type'] === 'memory')
      .map((block) => block?.['numaAffinity'])
      .flatMap((affinity) => (Array.isArray(affinity) ? affinity.filter(isNumber) : []));
    return affine.length === 0 ? undefined : [...new Set(affine)].join().slice(0, LONGEST);
  },
};

const isNumber = (value: unknown): value is number => typeof value === 'number';

/** Maximum length of a list, to bound the text of errors. */
const LONGEST = 100;
