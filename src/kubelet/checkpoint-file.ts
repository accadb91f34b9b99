import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs';
import { errnoOf, messageOf } from '../core/errors/index.ts';

/** What a look at a file gives. */
export type Look =
  | { readonly kind: 'unchanged' }
  | { readonly kind: 'absent' }
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'unreadable'; readonly why: string };

/** kubelet's own file of a node with 110 pods has a fiftieth of it: what is larger is something else. */
const LARGEST = 16 * 1024 * 1024;
/**
 * Two replacements within one tick of the kernel's clock, of the same size and with an inode that was free again, look
 * alike: a file as young as this is read again. In nanoseconds.
 */
const YOUNG_NS = 100_000_000n;

/** One of kubelet's files, which it replaces whole. Read only when it is another one than was read last. */
export class CheckpointFile {
  /** Of what was read last; undefined: it has to be read anew whatever it looks like. */
  #seen: string | undefined;
  #content: Buffer | undefined;
  /** Why it could not be read the last time. */
  #fault: string | undefined;
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  /** Reads it, at once: who asks has to act on it now. A fault is told once, as long as it is the same. Never throws. */
  look(): Look {
    try {
      const look = this.#read();
      this.#fault = undefined;
      return look;
    } catch (error) {
      const isAbsent = errnoOf(error) === 'ENOENT' || errnoOf(error) === 'ENOTDIR';
      const wasThere = this.#content !== undefined || this.#fault !== undefined;
      const isKnown = isAbsent ? !wasThere : this.#fault === messageOf(error);
      this.#seen = this.#content = undefined;
      this.#fault = isAbsent ? undefined : messageOf(error);
      if (isKnown) return { kind: 'unchanged' };
      return isAbsent ? { kind: 'absent' } : { kind: 'unreadable', why: messageOf(error) };
    }
  }

  #read(): Look {
    // A pipe of that name would keep us waiting for its other end.
    const descriptor = openSync(this.#path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const stat = fstatSync(descriptor, { bigint: true });
      const { ino, dev, size, mtimeNs, ctimeNs } = stat;
      const seen = [dev, ino, size, mtimeNs, ctimeNs].join(' ');
      if (seen === this.#seen) return { kind: 'unchanged' };
      if (!stat.isFile()) throw new Error('it is not a regular file');
      if (size > LARGEST) throw new Error(`it has ${size} bytes, more than the maximum of ${LARGEST}`);
      const isYoung = BigInt(Date.now()) * 1_000_000n - ctimeNs < YOUNG_NS;
      const content = readFileSync(descriptor);
      this.#seen = isYoung ? undefined : seen;
      if (this.#content?.equals(content) === true) return { kind: 'unchanged' };
      this.#content = content;
      return { kind: 'text', text: content.toString() };
    } finally {
      closeSync(descriptor);
    }
  }
}
