import { type FSWatcher, type Stats, statSync, watch } from 'node:fs';
import { basename, dirname } from 'node:path';
import { errnoOf } from '../core/errors/index.ts';

/**
 * Reports the next change of some files in a folder, once: a thousand changes cost no more than one until the watch is armed
 * again. The folder may be created later, removed and replaced: while it does not exist, its nearest existing parent is watched.
 */
export class FolderWatch {
  readonly #folder: string;
  readonly #names: ReadonlySet<string>;
  readonly #onChange: () => void;
  readonly #onFault: (error: unknown) => void;
  #watcher: FSWatcher | undefined;

  /** `onFault` is called when the folder cannot be watched. Nothing is reported then until the watch is armed again. */
  constructor(parts: {
    readonly folder: string;
    readonly names: readonly string[];
    readonly onChange: () => void;
    readonly onFault: (error: unknown) => void;
  }) {
    this.#folder = parts.folder;
    this.#names = new Set(parts.names);
    this.#onChange = parts.onChange;
    this.#onFault = parts.onFault;
  }

  /** Starts to watch for the next change. A caller that reads the files after this call misses no change. */
  arm(): void {
    this.close();
    try {
      this.#watchNearest();
    } catch (error) {
      this.#fail(error);
    }
  }

  close(): void {
    this.#watcher?.close();
    this.#watcher = undefined;
  }

  #watchNearest(): void {
    let nearest = nearestFolder(this.#folder);
    for (let watched = ''; watched !== nearest.folder; nearest = nearestFolder(this.#folder)) {
      this.close();
      try {
        this.#watchFolder(nearest);
        watched = nearest.folder;
      } catch (error) {
        // Removed in between: the loop continues with the nearest parent.
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
      if (this.#watcher === watcher) this.#fail(error);
    });
    this.#watcher = watcher;
  }

  #tell(): void {
    this.close();
    this.#onChange();
  }

  #fail(error: unknown): void {
    this.close();
    this.#onFault(error);
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

/** Whether the watched folder was removed or replaced. Its own removal is reported with its own name, or without one. */
function hasGone(name: string | null, { folder, stats }: Nearest): boolean {
  if (name !== null && name !== basename(folder)) return false;
  const now = statSync(folder, { throwIfNoEntry: false });
  return now === undefined || now.ino !== stats?.ino || now.dev !== stats.dev;
}
