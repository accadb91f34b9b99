import { messageOf } from '../core/errors/index.ts';
import { type JsonObject, asObject } from './json.ts';

/**
 * The checkpoints of kubelet's CPU manager (kubelet pkg/kubelet/cm/cpumanager/state/checkpoint.go, CPUManagerCheckpoint) and memory
 * manager (pkg/kubelet/cm/memorymanager/state/checkpoint.go, MemoryManagerCheckpoint). Only the static policies assign anything. As
 * with the other checkpoints of kubelet, parts of unknown shape are skipped and the checksum is not verified.
 */
export interface CpuAssignments {
  /** Returns the CPUs of a container, or of its pod (gate PodLevelResourceManagers), as a list such as `0,2-3`. */
  of(podUid: string, container: string): string | undefined;
}

export interface MemoryAssignments {
  /** Returns the NUMA nodes of a container's memory, or of its pod's, as a list such as `0,1`. */
  of(podUid: string, container: string): string | undefined;
}

/** Parses `cpu_manager_state`. Returns what is wrong with a file that is none. Never throws. */
export const readCpuState = (text: string): CpuAssignments | string => readState(text, 'static', cpuList);

/** Parses `memory_manager_state`. Returns what is wrong with a file that is none. Never throws. */
export const readMemoryState = (text: string): MemoryAssignments | string => readState(text, 'Static', nodeList);

type Assignments = CpuAssignments & MemoryAssignments;

function readState(
  text: string,
  policy: string,
  listOf: (assigned: unknown) => string | undefined,
): Assignments | string {
  const file = parse(text);
  if (typeof file === 'string') return file;
  if (typeof file['policyName'] !== 'string') return 'it has no string "policyName"';
  if (file['policyName'] !== policy) return { of: () => undefined };
  const [containers, pods] = [asObject(file['entries']), asObject(file['podEntries'])];
  return {
    of: (podUid, container) => listOf(own(asObject(own(containers, podUid)), container)) ?? listOf(own(pods, podUid)),
  };
}

function parse(text: string): JsonObject | string {
  try {
    return asObject(JSON.parse(text)) ?? 'it is not a JSON object';
  } catch (error) {
    // The parser's message quotes the content, which may be arbitrarily long.
    return messageOf(error).slice(0, 200);
  }
}

/** Names come from pods: one may be that of a property which every object inherits. */
const own = (object: JsonObject | undefined, name: string): unknown =>
  object !== undefined && Object.hasOwn(object, name) ? object[name] : undefined;

/** A container has a list of CPUs. A pod has an object with one, `cpuSet`. */
function cpuList(assigned: unknown): string | undefined {
  const list = asObject(assigned)?.['cpuSet'] ?? assigned;
  return typeof list === 'string' && list !== '' ? list.slice(0, LONGEST) : undefined;
}

/** A container has a list of blocks. A pod has an object with one, `memoryBlocks`. Huge pages are assigned separately. */
function nodeList(assigned: unknown): string | undefined {
  const blocks = asObject(assigned)?.['memoryBlocks'] ?? assigned;
  if (!Array.isArray(blocks)) return undefined;
  const nodes = blocks
    .map(asObject)
    .filter((block) => block?.['type'] === 'memory')
    .map((block) => block?.['numaAffinity'])
    .flatMap((affinity) => (Array.isArray(affinity) ? affinity.map(String) : []));
  return nodes.length === 0 ? undefined : [...new Set(nodes)].join().slice(0, LONGEST);
}

/** Bounds the text of errors. */
const LONGEST = 100;
