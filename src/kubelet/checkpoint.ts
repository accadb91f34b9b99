import { messageOf } from '../core/errors/index.ts';
import { type Bytes, bytes, parseMilli, parseQuantity } from '../core/quantities/index.ts';

/**
 * What kubelet (1.33 and later) writes of the pods' resources: `allocated_pods_state`, what it has admitted, and
 * `actuated_pods_state`, what it has carried out. Both are kubelet's own and may change with any release, so each level is
 * taken as far as it can be understood. The checksum is not looked at: the files are replaced whole, and its kind is nobody's promise.
 */
export interface Checkpoint {
  /** By pod uid. */
  readonly pods: ReadonlyMap<string, PodEntry>;
  /** Entries, and values in them, of another shape than is known. They are left out. */
  readonly unrecognized: number;
}

/** What one pod has. Only what is understood of it. */
export interface PodEntry {
  /** By the container's name: the regular ones and the restartable init containers. */
  readonly containers: ReadonlyMap<string, EntryLimits>;
  /** Of the pod itself, where its limits are its own (pod-level resources). */
  readonly pod: EntryLimits | undefined;
  /** Whether all of it was understood: what its limits come to is known only then. */
  readonly isComplete: boolean;
}

/** Limits; absent: none. */
export interface EntryLimits {
  readonly memory?: Bytes;
  /** Thousandths of a CPU. */
  readonly milliCpu?: number;
}

export type ReadCheckpoint =
  | ({ readonly kind: 'read' } & Checkpoint)
  /** Nothing of it can be understood. */
  | { readonly kind: 'unreadable'; readonly why: string };

/** Reads the text of one of the two files. Never throws. */
export function readCheckpoint(text: string): ReadCheckpoint {
  try {
    const file = asObject(JSON.parse(text));
    if (typeof file?.['data'] !== 'string') return unreadable('it has no string "data"');
    const data = asObject(JSON.parse(file['data']));
    if (data === undefined) return unreadable('its "data" is not a JSON object');
    // Without pods there are no entries.
    const entries = data['entries'] === undefined ? {} : asObject(data['entries']);
    if (entries === undefined) return unreadable('its "entries" is not a JSON object');
    return { kind: 'read', ...new Reading().podsOf(entries) };
  } catch (error) {
    // The parser's words quote what it has read, which may be anything, and as long.
    return unreadable(messageOf(error).slice(0, 200));
  }
}

const unreadable = (why: string): ReadCheckpoint => ({ kind: 'unreadable', why });

/** One file being read. The same few amounts come again and again: each is parsed once. */
class Reading {
  #unrecognized = 0;
  readonly #sizes = new Map<string, Bytes | undefined>();
  readonly #millis = new Map<string, number | undefined>();

  podsOf(entries: JsonObject): Checkpoint {
    const pods = new Map<string, PodEntry>();
    for (const [uid, value] of Object.entries(entries)) {
      const entry = this.#entryOf(value);
      if (entry !== undefined) pods.set(uid, entry);
    }
    return { pods, unrecognized: this.#unrecognized };
  }

  #entryOf(value: unknown): PodEntry | undefined {
    const entry = asObject(value);
    if (entry === undefined) {
      this.#unrecognized += 1;
      return undefined;
    }
    const before = this.#unrecognized;
    const containers = new Map<string, EntryLimits>();
    for (const [name, resources] of Object.entries(this.#optional(entry['ContainerResources']) ?? {})) {
      const limits = this.#limitsOf(resources);
      if (limits !== undefined) containers.set(name, limits);
    }
    const level = entry['PodLevelResources'];
    const pod = level === undefined || level === null ? undefined : this.#limitsOf(level);
    return { containers, pod, isComplete: this.#unrecognized === before };
  }

  /** Undefined: of a container whose limits are not understood nothing is known. */
  #limitsOf(value: unknown): EntryLimits | undefined {
    const resources = asObject(value);
    if (resources === undefined) {
      this.#unrecognized += 1;
      return undefined;
    }
    const before = this.#unrecognized;
    const limits = this.#optional(resources['limits']) ?? {};
    if (this.#unrecognized !== before) return undefined;
    const memory = this.#amount(limits['memory'], this.#sizes, parseQuantity);
    const milliCpu = this.#amount(limits['cpu'], this.#millis, parseMilli);
    if (memory === 'unrecognized' || milliCpu === 'unrecognized') {
      this.#unrecognized += 1;
      return undefined;
    }
    return {
      // No quantity of 0 limits anything.
      ...(memory !== undefined && memory > 0 && { memory: bytes(memory) }),
      ...(milliCpu !== undefined && milliCpu > 0 && { milliCpu }),
    };
  }

  /** Quantities are texts; Kubernetes reads numbers as well. */
  #amount<Amount extends number>(
    value: unknown,
    known: Map<string, Amount | undefined>,
    parse: (text: string) => Amount | undefined,
  ): Amount | undefined | 'unrecognized' {
    if (value === undefined || value === null) return undefined;
    if (typeof value !== 'string' && typeof value !== 'number') return 'unrecognized';
    const text = String(value);
    if (!known.has(text)) known.set(text, parse(text));
    return known.get(text) ?? 'unrecognized';
  }

  #optional(value: unknown): JsonObject | undefined {
    if (value === undefined || value === null) return undefined;
    const object = asObject(value);
    if (object === undefined) this.#unrecognized += 1;
    return object;
  }
}

type JsonObject = Readonly<Record<string, unknown>>;

const asObject = (value: unknown): JsonObject | undefined =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : undefined;
