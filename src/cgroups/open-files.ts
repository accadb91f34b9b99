import { closeSync, readFileSync } from 'node:fs';

/** Maximum number of open files: those of 128 containers. Each uses a page of kernel memory (fs/seq_file.c). */
export const MAX_OPEN_FILES = 512;
/** Fraction of the process's descriptors that open files may use: connections need the others. */
const SHARE = 8;

/**
 * Files of cgroups that stay open, so that reading one again takes one system call instead of three. Beyond the limit,
 * the file that has not been used for the longest time is closed.
 */
export class OpenFiles {
  readonly #limit: number;
  /** Descriptors by path, the most recently used last. */
  readonly #descriptors = new Map<string, number>();

  constructor(limit = Math.min(MAX_OPEN_FILES, Math.floor(descriptorLimit() / SHARE))) {
    this.#limit = limit;
  }

  get size(): number {
    return this.#descriptors.size;
  }

  /** Returns the descriptor of a file that is open. */
  get(path: string): number | undefined {
    const descriptor = this.#descriptors.get(path);
    if (descriptor === undefined) return undefined;
    this.#descriptors.delete(path);
    this.#descriptors.set(path, descriptor);
    return descriptor;
  }

  /** Stores an open file. The caller must not close the descriptor afterwards. */
  keep(path: string, descriptor: number): void {
    this.drop(path);
    this.#descriptors.set(path, descriptor);
    if (this.#descriptors.size <= this.#limit) return;
    const [oldest] = this.#descriptors.keys();
    if (oldest !== undefined) this.drop(oldest);
  }

  /** Closes a file. */
  drop(path: string): void {
    const descriptor = this.#descriptors.get(path);
    if (descriptor === undefined) return;
    this.#descriptors.delete(path);
    closeSync(descriptor);
  }

  /** Closes all files: the process has no free descriptor. */
  clear(): void {
    for (const path of [...this.#descriptors.keys()]) this.drop(path);
  }
}

/** Returns this process's descriptor limit (proc(5), /proc/pid/limits). 0 if unreadable: no file stays open then. */
function descriptorLimit(): number {
  let limits: string;
  try {
    limits = readFileSync('/proc/self/limits', 'utf8');
  } catch {
    return 0;
  }
  const [, soft] = /^Max open files +(\d+) /m.exec(limits) ?? [];
  // Without a number the limit is "unlimited".
  return soft === undefined ? Infinity : Number(soft);
}
