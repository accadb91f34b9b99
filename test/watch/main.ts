import { closeSync, openSync, readSync, statfsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { Recorder, type State } from './recorder.ts';

/**
 * Polls files of cgroups and sizes of volumes every millisecond, in a process of its own. Each line of standard input is a
 * WatchCommand as JSON, and is answered by a line once all have been read anew, in the turn of the polling itself: who is
 * answered twice knows that it has polled all the time between. `report` ends watching. Ends when standard input does.
 */
export type WatchCommand =
  | { readonly what: 'watch'; readonly files: readonly string[]; readonly volumes: readonly string[] }
  | { readonly what: 'look' }
  | { readonly what: 'report' };

export interface WatchProgress {
  /** How often all of them were read. */
  readonly readings: number;
}

export interface WatchReport extends WatchProgress {
  /** Each state, in order and without repeats: what the files had, then the volumes' sizes in bytes. */
  readonly seen: readonly State[];
}

/** Files stay open: to read one is a single system call. */
class Watch {
  readonly #files: readonly number[];
  readonly #volumes: readonly string[];
  readonly #bytes = Buffer.alloc(64);
  readonly recorder = new Recorder(() => this.#read());

  constructor({ files, volumes }: { readonly files: readonly string[]; readonly volumes: readonly string[] }) {
    this.#files = files.map((file) => openSync(file, 'r'));
    this.#volumes = volumes;
  }

  #read(): State {
    const contents = this.#files.map((file) =>
      this.#bytes.toString('latin1', 0, readSync(file, this.#bytes, 0, this.#bytes.length, 0)).trim(),
    );
    const sizes = this.#volumes.map((folder) => {
      const { blocks, bsize } = statfsSync(folder);
      return String(blocks * bsize);
    });
    return [...contents, ...sizes];
  }

  end(): WatchReport {
    for (const file of this.#files) closeSync(file);
    return { readings: this.recorder.readings, seen: this.recorder.seen };
  }
}

let watch: Watch | undefined;
let asked: WatchCommand | undefined;

function poll(polled: Watch): void {
  if (polled !== watch) return;
  polled.recorder.look();
  if (asked !== undefined) answer(asked, polled);
  // Not at once: on one processor, polling without a pause takes half of the time from what it looks at, and looks no more
  // often for it, since the kernel then takes turns of tens of milliseconds. Whoever sleeps is woken first.
  setTimeout(poll, 1, polled);
}

function answer({ what }: WatchCommand, polled: Watch): void {
  asked = undefined;
  if (what === 'report') watch = undefined;
  const told: WatchProgress | WatchReport = what === 'report' ? polled.end() : { readings: polled.recorder.readings };
  process.stdout.write(`${JSON.stringify(told)}\n`);
}

createInterface({ input: process.stdin }).on('line', (line) => {
  asked = JSON.parse(line) as WatchCommand;
  if (asked.what === 'watch') poll((watch = new Watch(asked)));
  else if (watch === undefined) throw new Error(`${asked.what}: nothing is watched`);
});
