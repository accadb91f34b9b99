import { join } from 'node:path';
import { type Clock, type Counters, type Log, messageOf } from '../core/index.ts';
import { type Checkpoint, isSameEntry, type PodEntry, readCheckpoint } from './checkpoint.ts';
import { CheckpointFile } from './checkpoint-file.ts';
import { FolderWatch } from './folder-watch.ts';
import { WorkBudget } from './work-budget.ts';

/** The limits of pods in kubelet's checkpoints. Empty without checkpoints. */
export interface KubeletState {
  /** Reads the checkpoints if they changed: kubelet writes them right before it makes CRI calls. */
  refresh(): void;
  /**
   * Reads the checkpoints like {@link refresh}. If they may have changed and reading has to wait, returns a promise
   * that resolves after the next read and never rejects.
   */
  refreshed(): Promise<void> | undefined;
  /** Returns the limits that kubelet has admitted for a pod. */
  allocated(podUid: string): PodEntry | undefined;
  /** Returns the limits that kubelet has applied to a pod. */
  actuated(podUid: string): PodEntry | undefined;
  /**
   * Returns the limits that kubelet has admitted for all pods, by uid. While the checkpoint cannot be read, returns the
   * entries read last: resources that kubelet has given to pods do not count as free then.
   */
  allocatedPods(): ReadonlyMap<string, PodEntry>;
  /**
   * Whether kubelet resizes this volume of a pod, see {@link PodEntry.volumes}. The allocated state decides: kubelet
   * writes it again for each pod when it starts, with or without the feature gate, before it remounts a volume
   * (pkg/kubelet/allocation/allocation_manager.go, AddPod). The actuated state keeps the volumes until the pod is
   * deleted. While a checkpoint cannot be read, the entries read last count.
   */
  resizesVolume(podUid: string, volume: string): boolean;
}

/** The empty state, used with `--foresight=false`. */
export const noKubeletState: KubeletState = {
  refresh: () => undefined,
  refreshed: () => undefined,
  allocated: () => undefined,
  actuated: () => undefined,
  allocatedPods: () => new Map(),
  resizesVolume: () => false,
};

export interface KubeletFilesOptions {
  readonly kubeletRoot: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly counters: Counters;
}

const NAMES = ['allocated_pods_state', 'actuated_pods_state'] as const;
type Name = (typeof NAMES)[number];

/** Minimum time between two reads triggered by file changes, in milliseconds. */
const GAP_MS = 50;

interface OneFile {
  readonly name: Name;
  readonly file: CheckpointFile;
  pods: Checkpoint['pods'];
  /** The pods that were read last. None when the file is absent. */
  lastPods: Checkpoint['pods'];
  /** See {@link Checkpoint}. Undefined if the file is not a checkpoint. */
  unrecognized: number | undefined;
  isFaulty: boolean;
  exists: boolean;
}

/**
 * kubelet's two checkpoints, kept up to date and never written. They are read when kubelet replaces them, and before
 * the shim handles a CRI call, because kubelet writes before it calls. Reading takes at most a tenth of the process's
 * time; beyond that it is delayed. An unreadable file counts as missing, except for {@link allocatedPods}.
 */
export class KubeletFiles implements KubeletState {
  readonly #files: Readonly<Record<Name, OneFile>>;
  readonly #watch: FolderWatch;
  readonly #budget: WorkBudget;
  #stopTimer: (() => void) | undefined;
  /** Cancels the remaining steps of a read in progress. */
  #stopLook: (() => void) | undefined;
  #isClosed = false;
  /** Called after the next read. */
  readonly #waiting: (() => void)[] = [];
  /** Whether a change was read that the listener has not been called for yet. */
  #isNew = false;
  #onChange: () => void = () => undefined;

  constructor(private readonly options: KubeletFilesOptions) {
    const { kubeletRoot, clock } = options;
    this.#budget = new WorkBudget(clock.now());
    const open = (name: Name): OneFile => ({
      name,
      file: new CheckpointFile(join(kubeletRoot, name)),
      pods: new Map(),
      lastPods: new Map(),
      unrecognized: undefined,
      isFaulty: false,
      exists: false,
    });
    this.#files = {
      allocated_pods_state: open('allocated_pods_state'),
      actuated_pods_state: open('actuated_pods_state'),
    };
    this.#watch = new FolderWatch({
      folder: kubeletRoot,
      names: NAMES,
      clock,
      onChange: () => this.#later(GAP_MS),
      onFault: (error) => this.#unwatchable(error),
      onRestored: () => options.log.info({ folder: kubeletRoot }, 'kubelet folder watched again'),
    });
  }

  /** Calls `listener` when a checkpoint has changed, never from within another method. It must not throw. */
  onChange(listener: () => void): void {
    this.#onChange = listener;
  }

  /** Reads the files, and watches them from now on. */
  begin(): void {
    this.#watch.arm();
    this.#read();
    this.#report();
  }

  close(): void {
    this.#isClosed = true;
    this.#stopTimer?.();
    this.#stopLook?.();
    this.#watch.close();
    this.#wake();
  }

  /** Whether kubelet's `allocated_pods_state` exists. */
  get isPresent(): boolean {
    return this.#files.allocated_pods_state.exists;
  }

  allocated(podUid: string): PodEntry | undefined {
    return this.#files.allocated_pods_state.pods.get(podUid);
  }

  actuated(podUid: string): PodEntry | undefined {
    return this.#files.actuated_pods_state.pods.get(podUid);
  }

  allocatedPods(): ReadonlyMap<string, PodEntry> {
    return this.#files.allocated_pods_state.lastPods;
  }

  resizesVolume(podUid: string, volume: string): boolean {
    const entries = NAMES.map((name) => this.#files[name].lastPods.get(podUid));
    const volumes = entries.find((entry) => entry !== undefined)?.volumes;
    return volumes === 'unknown' || volumes?.has(volume) === true;
  }

  refresh(): void {
    this.#refresh();
  }

  /** Returns whether the checkpoints were read. */
  #refresh(): boolean {
    const isAllowed = !this.#isClosed && this.#budget.waitAt(this.options.clock.now()) === 0;
    if (isAllowed) this.#read();
    if (this.#isNew) this.#reportSoon();
    return isAllowed;
  }

  refreshed(): Promise<void> | undefined {
    if (this.#refresh() || this.#isClosed) return undefined;
    if (!NAMES.some((name) => this.#files[name].file.mayHaveChanged())) return undefined;
    const read = new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.#later(0);
    return read;
  }

  /** Schedules a call of the listener. A change that was read does not wait until the next read is allowed. */
  #reportSoon(): void {
    if (this.#isClosed) return;
    this.#stopTimer?.();
    this.#stopTimer = this.options.clock.after(0, () => this.#look());
  }

  /** Schedules a read. Until it runs, the watch reports no further change. */
  #later(gapMs: number): void {
    if (this.#isClosed || this.#stopTimer !== undefined) return;
    const { clock } = this.options;
    const wait = Math.max(gapMs, this.#budget.waitAt(clock.now()));
    this.#stopTimer = clock.after(wait, () => this.#look());
  }

  #look(): void {
    this.#stopTimer = undefined;
    this.#stopLook?.();
    this.#stopLook = undefined;
    if (this.#isClosed) return;
    // A CRI call may have used up the time budget since this was scheduled.
    if (this.#budget.waitAt(this.options.clock.now()) > 0) {
      this.#later(0);
      this.#report();
      return;
    }
    // Watch before reading, so that a change in between is reported.
    this.#watch.arm();
    this.#readFrom(0);
  }

  /**
   * Reads the files one by one, each changed file in its own turn of the event loop, and then reports: on a node with
   * many pods, a file takes milliseconds.
   */
  #readFrom(first: number): void {
    this.#stopLook = undefined;
    for (const [at, name] of NAMES.entries()) {
      if (at < first || !this.#timed(() => this.#readOne(this.#files[name]))) continue;
      this.#stopLook = this.options.clock.after(0, () => this.#readFrom(at + 1));
      return;
    }
    this.#wake();
    this.#report();
  }

  #report(): void {
    if (!this.#isNew) return;
    this.#isNew = false;
    this.#onChange();
  }

  #read(): void {
    this.#timed(() => {
      for (const name of NAMES) this.#readOne(this.#files[name]);
    });
    this.#wake();
  }

  #timed<Result>(read: () => Result): Result {
    const start = performance.now();
    const result = read();
    this.#budget.spend(performance.now() - start, this.options.clock.now());
    return result;
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }

  /** Returns whether the file has changed. */
  #readOne(one: OneFile): boolean {
    const result = one.file.result();
    if (result.kind === 'unchanged') return false;
    this.#isNew = true;
    const { log, counters } = this.options;
    one.exists = result.kind !== 'absent';
    const read = result.kind === 'text' ? this.#parsed(one, result.text) : result;
    one.pods = read.kind === 'read' ? withEqualEntries(one.lastPods, read.pods) : new Map();
    if (read.kind !== 'unreadable') one.lastPods = one.pods;
    one.unrecognized = read.kind === 'read' ? read.unrecognized : undefined;
    const fault = faultOf(read);
    if (fault === undefined) {
      if (one.isFaulty) log.info({ file: one.name }, 'kubelet checkpoint readable again');
      one.isFaulty = false;
      return true;
    }
    counters.foresight('unreadable');
    // Logged once: the file is read again whenever kubelet replaces it.
    if (!one.isFaulty) log.warn({ file: one.name, error: fault }, 'kubelet checkpoint not understood');
    one.isFaulty = true;
    return true;
  }

  /** Parses a file. Once kubelet has applied everything it admitted, both files are equal and are parsed only once. */
  #parsed(one: OneFile, text: string): ReturnType<typeof readCheckpoint> {
    const twin = NAMES.map((name) => this.#files[name]).find(
      ({ file }) => file !== one.file && file.isSameAs(one.file),
    );
    return twin?.unrecognized === undefined
      ? readCheckpoint(text)
      : { kind: 'read', pods: twin.pods, unrecognized: twin.unrecognized };
  }

  #unwatchable(error: unknown): void {
    const { log, counters, kubeletRoot } = this.options;
    counters.foresight('unreadable');
    log.warn(
      { folder: kubeletRoot, error: messageOf(error) },
      'kubelet folder not watched; its checkpoints are read at CRI calls only until it can be watched again',
    );
  }
}

/**
 * Returns the pods as read, but reuses the earlier entry object of each pod whose entry is equal: kubelet writes all
 * pods when one changes, and data derived from the other entries stays valid.
 */
const withEqualEntries = (before: Checkpoint['pods'], read: Checkpoint['pods']): Checkpoint['pods'] =>
  new Map(
    [...read].map(([uid, entry]) => {
      const earlier = before.get(uid);
      return [uid, earlier !== undefined && isSameEntry(earlier, entry) ? earlier : entry];
    }),
  );

function faultOf(
  read: ReturnType<typeof readCheckpoint> | { readonly kind: 'absent' | 'unreadable'; readonly why?: string },
): string | undefined {
  switch (read.kind) {
    case 'absent':
      return undefined;
    case 'unreadable':
      return read.why ?? 'unreadable';
    case 'read':
      return read.unrecognized === 0 ? undefined : `${read.unrecognized} values of an unknown shape`;
  }
}
