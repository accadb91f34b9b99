import { openSync, closeSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

/**
 * Polls a pod's cgroup every millisecond, in a process of its own. Each line of standard input is a WatchCommand as JSON, and
 * is answered by a line: `watch` by WatchProgress once the pod has been read; `look` by WatchProgress once it has been read anew;
 * `report`, which ends watching, by WatchReport. Ends when standard input does.
 *
 * A reading takes the pod's limit before and after the containers': as limits are only ever moved in an order that keeps
 * the sum within the pod's, at least one of the two was in force with what was read between. So a sum above both is a
 * violation, and not a torn reading.
 */
export type WatchCommand =
  /** The pod's cgroup folder, and the names of its containers' cgroups. */
  | { readonly what: 'watch'; readonly pod: string; readonly containers: readonly string[] }
  | { readonly what: 'look' }
  | { readonly what: 'report' };

export interface WatchProgress {
  /** Readings made of this pod: all its limits, of memory and of CPU. */
  readonly readings: number;
}

export interface WatchReport extends WatchProgress {
  /** The first of them, without repeats. */
  readonly violations: readonly string[];
  /** Each pod limit and sum that was seen, in order; of memory and of CPU each without what the reading before had. */
  readonly seen: readonly string[];
}

/** Files that stay open: a reading is one system call for each. */
class LimitFile {
  readonly #descriptor: number;
  readonly #bytes = Buffer.alloc(64);

  constructor(path: string) {
    this.#descriptor = openSync(path, 'r');
  }

  read(): string {
    return this.#bytes.toString('latin1', 0, readSync(this.#descriptor, this.#bytes, 0, 64, 0)).trim();
  }

  close(): void {
    closeSync(this.#descriptor);
  }
}

/** One resource of a pod: what its limit is, and what its containers' limits add up to. */
class Resource {
  readonly #pod: LimitFile;
  readonly #containers: readonly LimitFile[];
  #last = '';

  constructor(
    readonly name: string,
    file: string,
    readonly amount: (text: string) => number,
    folders: { readonly pod: string; readonly containers: readonly string[] },
  ) {
    this.#pod = new LimitFile(join(folders.pod, file));
    this.#containers = folders.containers.map((container) => new LimitFile(join(folders.pod, container, file)));
  }

  /** Gives what there is to report of a reading. */
  check(): { readonly violation?: string; readonly seen?: string } {
    const before = this.#pod.read();
    const texts = this.#containers.map((container) => container.read());
    const after = this.#pod.read();
    const all = [before, ...texts, after].join(' ');
    if (all === this.#last) return {};
    this.#last = all;
    const sum = texts.reduce((total, text) => total + this.amount(text), 0);
    const [first, then] = [this.amount(before), this.amount(after)];
    const line = `${this.name}: containers ${round(sum)}, pod ${round(first)}${first === then ? '' : ` then ${round(then)}`}`;
    // A millionth: rates are not exact numbers.
    const above = sum > Math.max(first, then) * (1 + 1e-6);
    return { ...(above && { violation: line }), ...(first === then && { seen: line }) };
  }

  close(): void {
    for (const file of [this.#pod, ...this.#containers]) file.close();
  }
}

const limit = (text: string): number => (text === 'max' ? Infinity : Number(text));
const round = (value: number): number => Math.round(value * 1e6) / 1e6;

/** CPU as a rate: quota by period. */
function rate(text: string): number {
  const [quota = '', period = ''] = text.split(' ');
  return limit(quota) / Number(period);
}

class Watch {
  readonly #resources: readonly Resource[];
  readonly #violations = new Set<string>();
  readonly #seen: string[] = [];
  #readings = 0;

  constructor(folders: { readonly pod: string; readonly containers: readonly string[] }) {
    this.#resources = [
      new Resource('memory', 'memory.max', limit, folders),
      new Resource('cpu', 'cpu.max', rate, folders),
    ];
  }

  check(): void {
    for (const resource of this.#resources) {
      const { violation, seen } = resource.check();
      if (violation !== undefined && this.#violations.size < 20) this.#violations.add(violation);
      if (seen !== undefined && this.#seen.length < 1000) this.#seen.push(seen);
    }
    this.#readings += 1;
  }

  get progress(): WatchProgress {
    return { readings: this.#readings };
  }

  end(): WatchReport {
    for (const resource of this.#resources) resource.close();
    return { readings: this.#readings, violations: [...this.#violations], seen: this.#seen };
  }
}

let watch: Watch | undefined;

function poll(polled: Watch): void {
  if (polled !== watch) return;
  polled.check();
  // Not at once: on one processor, polling without a pause takes half of the time from what it looks at, and looks no more
  // often for it, since the kernel then takes turns of tens of milliseconds. Whoever sleeps is woken first.
  setTimeout(poll, 1, polled);
}

function answer(command: WatchCommand): WatchProgress | WatchReport {
  switch (command.what) {
    case 'watch':
      watch = new Watch(command);
      poll(watch);
      return watch.progress;
    case 'look':
      watch?.check();
      return watch?.progress ?? { readings: 0 };
    case 'report': {
      watch?.check();
      const report = watch?.end() ?? { readings: 0, violations: [], seen: [] };
      watch = undefined;
      return report;
    }
  }
}

createInterface({ input: process.stdin }).on('line', (line) => {
  process.stdout.write(`${JSON.stringify(answer(JSON.parse(line) as WatchCommand))}\n`);
});
