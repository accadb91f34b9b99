import { type Counters, type Log, noCounters, noLog, wallTime } from '../../core/index.ts';
import type { ResizeState } from '../plan/resize-request.ts';
import type { StepRecord } from '../plan/step.ts';
import type { ContainerName } from '../plan/value-changes.ts';
import type { PodIdentity } from '../pods/pod-identity.ts';
import { type HistoryEntry, type Requester, requesterText } from './history-entry.ts';
import { type ChangeListener, ChangeRecorder, RequestRecorder } from './request-recorder.ts';

/** Maximum sizes of the history. See docs/limits.md. */
export interface HistoryBounds {
  /** Ended resizes of all pods. */
  readonly node: number;
  /** Ended resizes of each pod. A separate limit, so that many resizes of one pod do not remove those of another. */
  readonly pod: number;
  /** Changed values of one resize. */
  readonly changes: number;
  /** Characters of a message. */
  readonly text: number;
}

export const historyBounds: HistoryBounds = { node: 256, pod: 10, changes: 64, text: 1024 };

export interface HistoryOptions {
  readonly log?: Log;
  /** Whether a sandbox is on the node. Nothing is stored for a sandbox that no longer exists. */
  readonly isKnown?: (sandboxId: string) => boolean;
  /** Returns the name of a container. */
  readonly nameOf?: ContainerName;
  readonly bounds?: Partial<HistoryBounds>;
  readonly counters?: Pick<Counters, 'resizeState'>;
}

/** Called for each new state and each step. Must not throw. */
export type HistoryListener = (entry: HistoryEntry, step?: StepRecord) => void;

/**
 * The last resizes of this node, from any requester: kubelet and other CRI clients, the resize API, and annotations. In
 * memory: it begins with the process.
 */
export class ResizeHistory {
  readonly #bounds: HistoryBounds;
  readonly #log: Log;
  readonly #counters: Pick<Counters, 'resizeState'>;
  readonly #isKnown: (sandboxId: string) => boolean;
  readonly #nameOf: ContainerName;
  readonly #listeners: HistoryListener[] = [];
  /** Resizes that have not ended, by id. Their number is limited where they are run. */
  readonly #open = new Map<string, HistoryEntry>();
  /** Ended resizes of all pods, the newest last. */
  readonly #node: HistoryEntry[] = [];
  /** Ended resizes by sandbox id, the newest last. */
  readonly #pods = new Map<string, HistoryEntry[]>();
  /** The order in which entries were stored: the system's time may be set back. */
  readonly #places = new WeakMap<HistoryEntry, number>();
  #stored = 0;

  constructor({
    log = noLog,
    counters = noCounters,
    isKnown = () => true,
    nameOf = (id) => id,
    bounds,
  }: HistoryOptions = {}) {
    this.#log = log;
    this.#counters = counters;
    this.#isKnown = isKnown;
    this.#nameOf = nameOf;
    this.#bounds = { ...historyBounds, ...bounds };
  }

  /** Reports CRI requests to `listener`. Resizes of the API and of annotations are reported by their own queue. */
  onRequest(listener: HistoryListener): void {
    this.#listeners.push(listener);
  }

  /** Starts the record of a request outside of the resize queue. It is stored once it changes something or fails. */
  request(pod: PodIdentity, requester: Requester): RequestRecorder {
    const [id, createdAt] = [crypto.randomUUID(), wallTime()];
    const count = this.#countStates(requester);
    return new RequestRecorder(this.changes(), requester, {
      put: (given) => {
        count(given.state);
        const entry = this.put({ ...given, id, pod, requester, createdAt, changedAt: wallTime(), count: 1 });
        // A repeated failure is stored in the earlier entry. Listeners know its own id, so this id needs an end, too.
        for (const listener of this.#listeners) listener({ ...entry, id });
      },
      step: (record) => {
        const entry = this.#open.get(id);
        if (entry !== undefined) for (const listener of this.#listeners) listener(entry, record);
      },
    });
  }

  /**
   * Returns a function that counts the states of a request, beginning with Proposed. The queue counts the states of the
   * resizes of the API and of annotations. A deferred request of the CRI has ended: its client retries it.
   */
  #countStates(requester: Requester): (state: ResizeState) => void {
    let isProposed = false;
    return (state) => {
      if (isOfQueue({ requester })) return;
      if (!isProposed) this.#counters.resizeState('Proposed');
      isProposed = true;
      this.#counters.resizeState(state);
      if (state === 'Deferred') this.#counters.resizeState('Canceled');
    };
  }

  /** Returns a recorder of what one request changes, and of whether it leaves something to roll back. */
  changes(listener: ChangeListener = {}): ChangeRecorder {
    return new ChangeRecorder(this.#nameOf, this.#bounds.changes, listener);
  }

  /** Stores a resize in its present state. Returns the stored entry: a repeated failure counts up its entry. */
  put(given: HistoryEntry): HistoryEntry {
    const entry = { ...given, message: given.message?.slice(0, this.#bounds.text) };
    const hasEnded = isEnded(entry);
    const stored = hasEnded ? this.#end(entry) : entry;
    this.#places.set(stored, (this.#stored += 1));
    if (hasEnded) log(this.#log, stored);
    else this.#open.set(entry.id, entry);
    return stored;
  }

  /** Returns a resize by its id or by a prefix of its id. Undefined if there is no match or several. */
  find(id: string): HistoryEntry | undefined {
    const found = id === '' ? [] : this.all.filter((entry) => entry.id.startsWith(id));
    return found.length === 1 ? found[0] : found.find((entry) => entry.id === id);
  }

  /** All stored resizes, the newest last. */
  get all(): readonly HistoryEntry[] {
    const ended = new Set([...this.#node, ...[...this.#pods.values()].flat()]);
    return this.#inOrder([...ended, ...this.#open.values()]);
  }

  /** The stored resizes of a pod, the newest first. */
  ofPod(sandboxId: string): readonly HistoryEntry[] {
    const open = [...this.#open.values()].filter(({ pod }) => pod.sandboxId === sandboxId);
    return this.#inOrder([...(this.#pods.get(sandboxId) ?? []), ...open]).toReversed();
  }

  /** Returns entries in the order in which they were stored. */
  #inOrder(entries: readonly HistoryEntry[]): readonly HistoryEntry[] {
    const place = (entry: HistoryEntry): number => this.#places.get(entry) ?? 0;
    return entries.toSorted((one, other) => place(one) - place(other));
  }

  /** Removes a pod that no longer exists. Its resizes stay in the list of the node. */
  forget(sandboxId: string): void {
    this.#pods.delete(sandboxId);
  }

  #end(entry: HistoryEntry): HistoryEntry {
    this.#open.delete(entry.id);
    const { sandboxId } = entry.pod;
    const ofPod = this.#pods.get(sandboxId) ?? [];
    // The shim also repeats its own resizes after those of others.
    const { kind } = entry.requester;
    const isOwn = kind === 'spec' || kind === 'shim';
    const last = isOwn ? ofPod.findLast(({ requester }) => requester.kind === kind) : ofPod.at(-1);
    const repeated = last !== undefined && repeats(entry, last);
    const stored = repeated ? { ...entry, id: last.id, createdAt: last.createdAt, count: last.count + 1 } : entry;
    if (repeated) {
      ofPod.splice(ofPod.indexOf(last), 1);
      const place = this.#node.indexOf(last);
      if (place >= 0) this.#node.splice(place, 1);
    }
    this.#node.push(stored);
    this.#node.splice(0, Math.max(0, this.#node.length - this.#bounds.node));
    if (!this.#isKnown(sandboxId)) return stored;
    ofPod.push(stored);
    ofPod.splice(0, Math.max(0, ofPod.length - this.#bounds.pod));
    this.#pods.set(sandboxId, ofPod);
    return stored;
  }
}

/** Whether a resize has ended. Outside of the queue it ends when it is deferred: a retry is another resize. */
const isEnded = (entry: HistoryEntry): boolean =>
  entry.state === 'Completed' ||
  entry.state === 'Infeasible' ||
  entry.state === 'Canceled' ||
  (entry.state === 'Deferred' && !isOfQueue(entry));

/** Whether a request failed like the previous one: kubelet retries every few seconds. The queue keeps its own ids. */
const repeats = (entry: HistoryEntry, last: HistoryEntry): boolean =>
  entry.state !== 'Completed' && !isOfQueue(entry) && signature(entry) === signature(last);

const isOfQueue = ({ requester: { kind } }: Pick<HistoryEntry, 'requester'>): boolean =>
  kind === 'api' || kind === 'annotation';

const signature = ({ state, reason, requester, changes, isRolledBack }: HistoryEntry): string =>
  JSON.stringify([state, reason, isRolledBack, requester.kind, requester.process?.name, changes]);

/** Logs values only, no annotations: `from` and `to` are amounts and contents of cgroup files. */
function log(
  to: Log,
  { id, pod, requester, state, reason, message, changes, count, isRolledBack }: HistoryEntry,
): void {
  const fields = {
    resize: id,
    pod: pod.sandboxId,
    uid: pod.uid,
    namespace: pod.namespace,
    name: pod.name,
    by: requesterText(requester),
    state,
    ...(reason !== undefined && { reason, error: message }),
    ...(isRolledBack && { rolledBack: true }),
    changes: changes.map(({ value, from, to: then }) => `${value} ${from === '' ? '?' : from} -> ${then}`),
    ...(count > 1 && { count }),
  };
  // Failed rollbacks and runtimes that fail midway need attention and are logged separately.
  to.info(fields, 'resize ended');
}
