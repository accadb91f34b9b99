import { closeSync, openSync, readSync, statfsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { Recorder, type State } from './recorder.ts';

/**
 * Polls files of cgroups and sizes of volumes every millisecond, as a separate process. Each line of standard input is
 * a WatchCommand as JSON. The next poll answers it with a line, so two answers prove that the process has polled in
 * between. `report` ends watching. The process ends with its standard input.
 */
export type WatchCommand =
  | { readonly what: 'watch'; readonly files: readonly string[]; readonly volumes: readonly string[] }
  | { readonly what: 'look' }
  | { readonly what: 'report' };

export interface WatchProgress {
  /** How often everything was read. */
  readonly readings: number;
}

export interface WatchReport extends WatchProgress {
  /** Each state, in order and without repeats: the files' contents, then the volumes' sizes in bytes. */
  readonly seen: readonly State[];
}

/** Keeps files open, so that reading one is a single system call. */
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
let command: WatchCommand | undefined;

function poll(polled: Watch): void {
  if (polled !== watch) return;
  polled.recorder.look();
  if (command !== undefined) answer(command, polled);
  // A pause is needed. Without one, this process uses half of a single processor and polls no more often, because the
  // kernel then switches processes every tens of milliseconds. A sleeping process is scheduled first.
  setTimeout(poll, 1, polled);
}

function answer({ what }: WatchCommand, polled: Watch): void {
  command = undefined;
  if (what === 'report') watch = undefined;
  const reply: WatchProgress | WatchReport = what === 'report' ? polled.end() : { readings: polled.recorder.readings };
  process.stdout.write(`${JSON.stringify(reply)}\n`);
}

createInterface({ input: process.stdin }).on('line', (line) => {
  command = JSON.parse(line) as WatchCommand;
  if (command.what === 'watch') poll((watch = new Watch(command)));
  else if (watch === undefined) throw new Error(`${command.what}: nothing is watched`);
});
