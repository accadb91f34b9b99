import { type BigIntStats, closeSync, constants, fstatSync, openSync, readFileSync, statSync } from 'node:fs';
import { errnoOf, MiB, messageOf, steadyNow } from '../core/index.ts';

/** The result of reading a file if it changed. */
export type ReadResult =
  | { readonly kind: 'unchanged' }
  | { readonly kind: 'absent' }
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'unreadable'; readonly why: string };

/** Maximum file size in bytes: fifty times the checkpoint of a node with 110 pods. */
const LARGEST = 16 * MiB;
/**
 * Two replacements within one tick of the kernel's clock, with the same size and a reused inode, have equal metadata.
 * So a file is read again unless its metadata has been the same for this time, in milliseconds. The file's own
 * timestamps are not used, because the system time may have changed.
 */
const YOUNG_MS = 100;

/** One of kubelet's checkpoint files, which kubelet replaces atomically. Read only when its metadata has changed. */
export class CheckpointFile {
  /** Metadata of the last read; undefined if the next call has to read the file in any case. */
  #seen: string | undefined;
  /** Metadata of the last read, and when a read first found this metadata. */
  #found: { readonly metadata: string; readonly at: number } | undefined;
  #content: Buffer | undefined;
  /** Why the last read failed. */
  #fault: string | undefined;

  constructor(private readonly path: string) {}

  /**
   * Reads the file if it changed. Synchronous, because the caller is about to act on the content. Reports the same
   * fault only once. Never throws.
   */
  result(): ReadResult {
    try {
      // One system call in the usual case, an unchanged file. Does not throw if kubelet does not write the file.
      const named = statSync(this.path, { bigint: true, throwIfNoEntry: false });
      if (named === undefined) return this.#failed({ isAbsent: true, why: '' });
      if (metadataOf(named) === this.#seen) return { kind: 'unchanged' };
      const look = this.#read();
      this.#fault = undefined;
      return look;
    } catch (error) {
      const isAbsent = errnoOf(error) === 'ENOENT' || errnoOf(error) === 'ENOTDIR';
      return this.#failed({ isAbsent, why: messageOf(error) });
    }
  }

  #failed({ isAbsent, why }: { readonly isAbsent: boolean; readonly why: string }): ReadResult {
    const wasThere = this.#content !== undefined || this.#fault !== undefined;
    const isKnown = isAbsent ? !wasThere : this.#fault === why;
    this.#seen = this.#content = undefined;
    this.#fault = isAbsent ? undefined : why;
    if (isKnown) return { kind: 'unchanged' };
    return isAbsent ? { kind: 'absent' } : { kind: 'unreadable', why };
  }

  /** Whether the file may have changed since it was read last. Fast: does not read it. Never throws. */
  mayHaveChanged(): boolean {
    try {
      return metadataOf(statSync(this.path, { bigint: true })) !== this.#seen;
    } catch {
      return this.#content !== undefined;
    }
  }

  /** Whether both files had the same content when they were read last. */
  isSameAs(other: CheckpointFile): boolean {
    return this.#content !== undefined && other.#content?.equals(this.#content) === true;
  }

  #read(): ReadResult {
    // O_NONBLOCK: opening a pipe would otherwise wait for its writer forever.
    const descriptor = openSync(this.path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const stat = fstatSync(descriptor, { bigint: true });
      const { size } = stat;
      const seen = metadataOf(stat);
      if (seen === this.#seen) return { kind: 'unchanged' };
      if (!stat.isFile()) throw new Error('it is not a regular file');
      if (size > LARGEST) throw new Error(`it has ${size} bytes, more than the maximum of ${LARGEST}`);
      const now = steadyNow();
      if (this.#found?.metadata !== seen) this.#found = { metadata: seen, at: now };
      const content = readFileSync(descriptor);
      this.#seen = now - this.#found.at < YOUNG_MS ? undefined : seen;
      if (this.#content?.equals(content) === true) return { kind: 'unchanged' };
      this.#content = content;
      return { kind: 'text', text: content.toString() };
    } finally {
      closeSync(descriptor);
    }
  }
}

const metadataOf = ({ ino, dev, size, mtimeNs, ctimeNs }: BigIntStats): string =>
  [dev, ino, size, mtimeNs, ctimeNs].join(' ');
