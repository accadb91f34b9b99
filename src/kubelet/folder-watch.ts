import { type FSWatcher, type Stats, statSync, watch } from 'node:fs';
import { basename, dirname } from 'node:path';
import { type Clock, errnoOf } from '../core/index.ts';

/** Delays before the next attempt to watch a folder, in milliseconds: the first one, and the longest. */
const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 60_000;

export interface FolderWatchOptions {
  readonly folder: string;
  readonly names: readonly string[];
  readonly clock: Clock;
  /** Called when a file has changed, and when the folder can be watched again: files may have changed meanwhile. */
  readonly onChange: () => void;
  /** Called when the folder can no longer be watched. */
  readonly onFault: (error: unknown) => void;
  /** Called when it can be watched again. */
  readonly onRestored: () => void;
}

/**
 * Reports only the first change of some files in a folder until the watch is armed again, so that many changes cost no
 * more than one. The folder may be created later, removed and replaced: while it does not exist, its nearest existing
 * parent is watched.
 *
 * A folder that cannot be watched is retried indefinitely: inotify has limits for all processes of a user (ENOSPC,
 * EMFILE), which others may use up for a while. The pauses grow until the watch has reported a change.
 */
export class FolderWatch {
  readonly #folder: string;
  readonly #names: ReadonlySet<string>;
  #watcher: FSWatcher | undefined;
  /** Cancels the next attempt after a fault. */
  #stopTimer: (() => void) | undefined;
  #pause = FIRST_PAUSE_MS;

  constructor(private readonly options: FolderWatchOptions) {
    this.#folder = options.folder;
    this.#names = new Set(options.names);
  }

  /**
   * Starts to watch for the next change. A caller that reads the files after this call misses no change. After a fault,
   * retries automatically.
   */
  arm(): void {
    if (this.#stopTimer !== undefined) return;
    const error = this.#watchFault();
    if (error === undefined) return;
    this.options.onFault(error);
    this.#tryLater();
  }

  close(): void {
    this.#stopTimer?.();
    this.#stopTimer = undefined;
    this.#closeWatcher();
  }

  #closeWatcher(): void {
    this.#watcher?.close();
    this.#watcher = undefined;
  }

  /** Watches the folder. Returns the error if that fails. */
  #watchFault(): Error | undefined {
    this.#closeWatcher();
    try {
      this.#watchNearest();
      return undefined;
    } catch (error) {
      this.#closeWatcher();
      return error instanceof Error ? error : new Error(String(error));
    }
  }

  #tryLater(): void {
    this.#stopTimer = this.options.clock.after(this.#pause, () => {
      if (this.#watchFault() !== undefined) {
        this.#tryLater();
        return;
      }
      this.#stopTimer = undefined;
      this.options.onRestored();
      this.options.onChange();
    });
    this.#pause = Math.min(2 * this.#pause, LONGEST_PAUSE_MS);
  }

  #watchNearest(): void {
    let nearest = nearestFolder(this.#folder);
    for (let watched = ''; watched !== nearest.folder; nearest = nearestFolder(this.#folder)) {
      this.#closeWatcher();
      try {
        this.#watchFolder(nearest);
        watched = nearest.folder;
      } catch (error) {
        // The folder was removed in between: the loop continues with the nearest parent.
        if (errnoOf(error) !== 'ENOENT' && errnoOf(error) !== 'ENOTDIR') throw error;
      }
      // inotify does not report changes before the watch began, so the nearest folder is looked up again.
    }
  }

  #watchFolder({ folder, stats }: Nearest): void {
    const watcher = watch(folder, { persistent: false }, (_event, name) => {
      if (this.#watcher !== watcher) return;
      const isOurs = folder !== this.#folder || (name !== null && this.#names.has(name));
      if (isOurs || hasGone(name, { folder, stats })) this.#tell();
    });
    watcher.on('error', (error) => {
      if (this.#watcher !== watcher) return;
      this.#closeWatcher();
      this.options.onFault(error);
      this.#tryLater();
    });
    this.#watcher = watcher;
  }

  #tell(): void {
    this.#closeWatcher();
    this.#pause = FIRST_PAUSE_MS;
    this.options.onChange();
  }
}

interface Nearest {
  readonly folder: string;
  readonly stats: Stats | undefined;
}

/** Returns the folder, or its nearest existing parent. */
function nearestFolder(path: string): Nearest {
  const stats = statSync(path, { throwIfNoEntry: false });
  return stats?.isDirectory() === true || path === dirname(path)
    ? { folder: path, stats }
    : nearestFolder(dirname(path));
}

/** Whether the watched folder was removed or replaced. Its removal is reported with its own name or none. */
function hasGone(name: string | null, { folder, stats }: Nearest): boolean {
  if (name !== null && name !== basename(folder)) return false;
  const now = statSync(folder, { throwIfNoEntry: false });
  return now === undefined || now.ino !== stats?.ino || now.dev !== stats.dev;
}
