import { type Bytes, bytes, messageOf, parseMilli, parseQuantity } from '../core/index.ts';

/**
 * kubelet's checkpoints of pod resources (1.33 and later; kubelet pkg/kubelet/allocation/state/checkpoint.go):
 * `allocated_pods_state` contains what kubelet has admitted (pkg/kubelet/allocation/allocation_manager.go), and
 * `actuated_pods_state` what it has applied (pkg/kubelet/kuberuntime/kuberuntime_manager.go). Both are internal to
 * kubelet and may change with any release, so unknown parts are skipped at every level. The checksum is not verified:
 * the files are replaced atomically, and its algorithm is not documented.
 */
export interface Checkpoint {
  /** By pod uid. */
  readonly pods: ReadonlyMap<string, PodEntry>;
  /** The number of entries, and of values in entries, with an unknown shape. These are omitted. */
  readonly unrecognized: number;
}

/** The entry of one pod, without the parts of unknown shape. */
export interface PodEntry {
  /**
   * By container name: regular and restartable init containers, since 1.36 all init containers (IsResizableContainer in
   * kubelet pkg/kubelet/allocation/allocation_manager.go). The entry does not say which kind a container has.
   */
  readonly containers: ReadonlyMap<string, EntryLimits>;
  /** The pod-level limits, if the pod has any. */
  readonly pod: EntryLimits | undefined;
  /** The requests that were understood. Absent: not known. */
  readonly requests?: EntryRequests;
  /**
   * The names of the memory-backed volumes that kubelet resizes (KEP-6030; kubelet 1.37 and later with the feature gate
   * InPlacePodVerticalScalingMemoryBackedVolumes): those with a sizeLimit. Absent: none. `unknown`: the shape is
   * unknown, so that any volume of the pod may be one of them.
   */
  readonly volumes?: ReadonlySet<string> | 'unknown';
  /** Whether no part was omitted. Only then is the sum of the limits known. */
  readonly isComplete: boolean;
}

/** The requests of a pod. A container or pod level whose requests are of unknown shape is left out. */
export interface EntryRequests {
  /** By container name, as {@link PodEntry.containers}. */
  readonly containers: ReadonlyMap<string, EntryLimits>;
  /** The pod-level requests, if the pod has any. */
  readonly pod: EntryLimits | undefined;
}

/** Limits or requests. Absent: no limit, or no request. */
export interface EntryLimits {
  readonly memory?: Bytes;
  /** Thousandths of a CPU. */
  readonly milliCpu?: number;
}

export type ReadCheckpoint =
  | ({ readonly kind: 'read' } & Checkpoint)
  /** The file is not a checkpoint. */
  | { readonly kind: 'unreadable'; readonly why: string };

/** Parses the content of a checkpoint. Never throws. */
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
    // The parser's message quotes the content, which may be arbitrarily long.
    return unreadable(messageOf(error).slice(0, 200));
  }
}

/** Whether two entries are equal. Much faster than util.isDeepStrictEqual, which takes as long as parsing. */
export const isSameEntry = (one: PodEntry, other: PodEntry): boolean =>
  one.isComplete === other.isComplete &&
  isSameLimits(one.pod, other.pod) &&
  hasSameLimits(one.containers, other.containers) &&
  isSameLimits(one.requests?.pod, other.requests?.pod) &&
  hasSameLimits(one.requests?.containers ?? NONE, other.requests?.containers ?? NONE) &&
  hasSameVolumes(one.volumes, other.volumes);

const NONE: PodEntry['containers'] = new Map();

const isSameLimits = (one: EntryLimits | undefined, other: EntryLimits | undefined): boolean =>
  one === undefined || other === undefined
    ? one === other
    : one.memory === other.memory && one.milliCpu === other.milliCpu;

const hasSameVolumes = (one: PodEntry['volumes'], other: PodEntry['volumes']): boolean =>
  one === other || (isSet(one) && isSet(other) && one.size === other.size && [...one].every((name) => other.has(name)));

const isSet = (volumes: PodEntry['volumes']): volumes is ReadonlySet<string> => volumes instanceof Set;

function hasSameLimits(one: PodEntry['containers'], other: PodEntry['containers']): boolean {
  if (one.size !== other.size) return false;
  for (const [name, limits] of one) {
    const found = other.get(name);
    if (found === undefined || !isSameLimits(limits, found)) return false;
  }
  return true;
}

const unreadable = (why: string): ReadCheckpoint => ({ kind: 'unreadable', why });

/** Parses one file. Parsed quantities are cached, because most pods have the same few. */
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
    const resourcesByName = Object.entries(this.#optional(entry['ContainerResources']) ?? {});
    for (const [name, resources] of resourcesByName) {
      const limits = this.#limitsOf(resources);
      if (limits !== undefined) containers.set(name, limits);
    }
    const level = entry['PodLevelResources'];
    const pod = level === undefined || level === null ? undefined : this.#limitsOf(level);
    const isComplete = this.#unrecognized === before;
    const volumes = this.#volumesOf(entry['EmptyDirVolumeLimits']);
    return {
      containers,
      pod,
      requests: this.#requestsOf(resourcesByName, level),
      ...(volumes !== undefined && { volumes }),
      isComplete,
    };
  }

  #volumesOf(value: unknown): PodEntry['volumes'] {
    if (value === undefined || value === null) return undefined;
    const limits = asObject(value);
    if (limits === undefined) {
      this.#unrecognized += 1;
      return 'unknown';
    }
    const names = Object.keys(limits);
    return names.length === 0 ? undefined : new Set(names);
  }

  /** Values of unknown shape are left out and not counted: no limit depends on them. */
  #requestsOf(resourcesByName: readonly (readonly [string, unknown])[], level: unknown): EntryRequests {
    const containers = new Map<string, EntryLimits>();
    for (const [name, resources] of resourcesByName) {
      const requests = this.#amountsOf(asObject(resources)?.['requests']);
      if (requests !== undefined) containers.set(name, requests);
    }
    return {
      containers,
      pod: level === undefined || level === null ? undefined : this.#amountsOf(asObject(level)?.['requests']),
    };
  }

  /** Returns undefined if any limit has an unknown shape: the container then counts as unknown. */
  #limitsOf(value: unknown): EntryLimits | undefined {
    const resources = asObject(value);
    if (resources === undefined) {
      this.#unrecognized += 1;
      return undefined;
    }
    const before = this.#unrecognized;
    const given = this.#optional(resources['limits']);
    if (this.#unrecognized !== before) return undefined;
    const limits = this.#amountsOf(given);
    if (limits === undefined) this.#unrecognized += 1;
    return limits;
  }

  /** Returns undefined if any amount has an unknown shape. */
  #amountsOf(given: unknown): EntryLimits | undefined {
    const amounts = given === undefined || given === null ? {} : asObject(given);
    const memory = this.#amount(amounts?.['memory'], this.#sizes, parseQuantity);
    const milliCpu = this.#amount(amounts?.['cpu'], this.#millis, parseMilli);
    if (amounts === undefined || memory === 'unrecognized' || milliCpu === 'unrecognized') return undefined;
    return {
      // A quantity of 0 is no limit and no request.
      ...(memory !== undefined && memory > 0 && { memory: bytes(memory) }),
      ...(milliCpu !== undefined && milliCpu > 0 && { milliCpu }),
    };
  }

  /** Parses a quantity: a string, or a number, which Kubernetes accepts as well. */
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

export type JsonObject = Readonly<Record<string, unknown>>;

/** Returns undefined for anything but a JSON object. */
export const asObject = (value: unknown): JsonObject | undefined =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : undefined;
