import { join } from 'node:path';
import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import { recordFile } from './file-names.ts';

/**
 * Why a record stays as it is: a newer shim has written it, or it cannot be read at present (EIO, EMFILE). Its content is not known, so
 * nothing may replace or remove it.
 */
export interface Withheld {
  readonly kind: 'newer' | 'unread';
  readonly why: string;
}

/** How many records are withheld, by kind. */
export type WithheldCounts = Readonly<Record<Withheld['kind'], number>>;

const REMEDY = {
  newer: 'install the newer shim again, or remove the file to give up what it stores',
  unread: 'check the disk; the shim reads the file again every 10 s',
} as const satisfies Record<Withheld['kind'], string>;

/** The records that are withheld, by file name (KEP-1287, restart tolerance, also after a downgrade). */
export class WithheldRecords {
  readonly #folder: string;
  readonly #records = new Map<string, Withheld>();

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Sets why a record is withheld; undefined when it no longer is. */
  set(name: string, withheld: Withheld | undefined): void {
    if (withheld === undefined) this.#records.delete(name);
    else this.#records.set(name, withheld);
  }

  /** Returns the names of the files. */
  names(): readonly string[] {
    return [...this.#records.keys()];
  }

  counts(): WithheldCounts {
    const unread = [...this.#records.values()].filter(({ kind }) => kind === 'unread').length;
    return { unread, newer: this.#records.size - unread };
  }

  /** Returns the error for a change of a pod's record while the record is withheld. */
  refusal(podUid: string): ShimError | undefined {
    const name = recordFile(podUid);
    const withheld = this.#records.get(name);
    if (withheld === undefined) return undefined;
    const file = join(this.#folder, name);
    const message = `the journal's record of pod ${podUid} is read-only: ${file} ${withheld.why}: ${REMEDY[withheld.kind]}`;
    return new ShimError(Code.FAILED_PRECONDITION, Reason.JOURNAL_UNAVAILABLE, message, { pod: podUid, file });
  }
}
