import { type FSWatcher, type Stats, statSync, watch } from 'node:fs';
import { basename, dirname } from 'node:path';
import { errnoOf } from '../core/errors/index.ts';

/**
 * Waits for something to happen to some names in a folder, once: so a thousand changes cost no more than one until it is armed
 * again. The folder itself may come later, go, and be replaced: while it is not there, the nearest one above it is watched.
 */
export class FolderWatch {
  readonly #folder: string;
  readonly #names: ReadonlySet<string>;
  readonly #onChange: () => void;
  readonly #onFault: (error: unknown) => void;
  #watcher: FSWatcher | undefined;

  /** `onFault`: it cannot be watched, and nothing more is told until it is armed again. */
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

  /** From now on the next change is told. Whoever reads what is there afterwards misses nothing. */
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
        // Gone in between: the next one above it.
        if (errnoOf(error) !== 'ENOENT' && errnoOf(error) !== 'ENOTDIR') throw error;
      }
      // What came before the watch began is not told by it: hence a second look.
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

/** The folder, or the nearest one above it that is there. */
function nearestFolder(path: string): Nearest {
  const stats = statSync(path, { throwIfNoEntry: false });
  return stats?.isDirectory() === true || path === dirname(path)
    ? { folder: path, stats }
    : nearestFolder(dirname(path));
}

/** The folder's own end comes under its own name, or none. */
function hasGone(name: string | null, { folder, stats }: Nearest): boolean {
  if (name !== null && name !== basename(folder)) return false;
  const now = statSync(folder, { throwIfNoEntry: false });
  return now === undefined || now.ino !== stats?.ino || now.dev !== stats.dev;
}
