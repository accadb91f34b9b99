import { readSync } from 'node:fs';
import { Code, errnoOf, nameOfErrno, Reason, ShimError } from '../core/index.ts';

// Node's fs.watch reports changes only. inotify(7) also reports reads, for files of cgroups as for any other. koffi is
// already a dependency (src/tmpfs): three libc calls are enough.

// From linux/inotify.h and asm-generic/fcntl.h. The same on all architectures that Node supports.
// The end of a read. A read of an empty file, such as cgroup.procs of a pod, causes no IN_ACCESS.
const IN_CLOSE_NOWRITE = 0x10;
const IN_Q_OVERFLOW = 0x4000;
const IN_NONBLOCK = 0o4000;
const IN_CLOEXEC = 0o2000000;

/** Polling interval for events, in milliseconds. libuv does not watch the descriptor, so it reports no event. */
const INTERVAL_MS = 100;

/** A watched file's struct inotify_event has four words: watch, mask, cookie, and the name's length, 0. */
const EVENT_WORDS = 4;

/** Maximum number of watched files: over twice kubelet's default maxPods. kubelet shares the user's inotify limit. */
export const MAX_WATCHES = 256;

/** Waits for another process to read a file and close it. */
export interface ReadWatch {
  /** Resolves when the file is read or removed, or the watch fails. Never rejects. Pending after {@link close}. */
  readonly whenRead: Promise<void>;
  close(): void;
}

/** The inotify(7) functions of libc. They return -1 on error and set `errno`. */
interface Inotify {
  init(flags: number): number;
  add(descriptor: number, path: string, mask: number): number;
  remove(descriptor: number, watch: number): number;
  errno(): number;
}

/**
 * Watches files through one inotify instance. It is created with the first watch, and the kernel closes it at the end
 * of the process: a user may have 128 instances (fs.inotify.max_user_instances), those of kubelet included, and closing
 * one blocks for 8 ms (fsnotify_wait_marks_destroyed).
 */
export class ReadWatches {
  readonly #limit: number;
  #inotify: Promise<Inotify> | undefined;
  #descriptor: number | undefined;
  /** Called when a file is read, by watch. The kernel returns the same watch for the same file. */
  readonly #readers = new Map<number, Set<() => void>>();
  #timer: NodeJS.Timeout | undefined;

  /** @param limit maximum number of files that are watched at a time */
  constructor(limit = MAX_WATCHES) {
    this.#limit = limit;
  }

  /** Watches a file from now on. Rejects with CGROUP_UNAVAILABLE if the kernel cannot or too many are watched. */
  async watch(path: string): Promise<ReadWatch> {
    const inotify = await (this.#inotify ??= loadInotify());
    const descriptor = this.#open(inotify, path);
    // Discards reads from before this watch.
    this.#look(inotify, descriptor);
    if (this.#readers.size >= this.#limit) throw unavailable(`${path}: not watched: ${this.#limit} files are`, {});
    const watch = inotify.add(descriptor, path, IN_CLOSE_NOWRITE);
    if (watch < 0) throw failed(path, 'inotify_add_watch', inotify.errno());
    const readers = this.#readers.get(watch) ?? new Set();
    this.#readers.set(watch, readers);
    this.#timer ??= setInterval(() => this.#look(inotify, descriptor), INTERVAL_MS).unref();
    let onRead = (): void => undefined;
    const whenRead = new Promise<void>((resolve) => readers.add((onRead = resolve)));
    const close = (): void => {
      if (readers.delete(onRead) && readers.size === 0) this.#remove(inotify, descriptor, watch);
    };
    return { whenRead, close };
  }

  /** Returns the instance's descriptor. Retries after a failure: other processes may have closed an instance since. */
  #open(inotify: Inotify, path: string): number {
    if (this.#descriptor !== undefined) return this.#descriptor;
    const descriptor = inotify.init(IN_NONBLOCK | IN_CLOEXEC);
    if (descriptor < 0) throw failed(path, 'inotify_init1', inotify.errno());
    return (this.#descriptor = descriptor);
  }

  /** Resolves the watches of files that were read or removed. */
  #look(inotify: Inotify, descriptor: number): void {
    for (const event of eventsOf(descriptor)) {
      const ended = event === 'lost' ? [...this.#readers.keys()] : [event];
      for (const watch of ended) {
        const readers = [...(this.#readers.get(watch) ?? [])];
        if (readers.length === 0) continue;
        this.#remove(inotify, descriptor, watch);
        for (const onRead of readers) onRead();
      }
    }
  }

  #remove(inotify: Inotify, descriptor: number, watch: number): void {
    this.#readers.get(watch)?.clear();
    this.#readers.delete(watch);
    // Fails for a removed file, whose watch the kernel has removed.
    inotify.remove(descriptor, watch);
    if (this.#readers.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}

/** The watches of this process. */
const watches = new ReadWatches();

/** Watches a file like {@link ReadWatches.watch}, for the whole process. */
export const watchReads = (path: string): Promise<ReadWatch> => watches.watch(path);

async function loadInotify(): Promise<Inotify> {
  const { default: koffi } = await import('koffi');
  const libc = koffi.load(null);
  return {
    init: libc.func('int inotify_init1(int flags)') as Inotify['init'],
    add: libc.func('int inotify_add_watch(int descriptor, const char *path, uint32_t mask)') as Inotify['add'],
    remove: libc.func('int inotify_rm_watch(int descriptor, int watch)') as Inotify['remove'],
    errno: () => koffi.errno(),
  };
}

/** Reads the queued events and returns their watches. `lost`: there were more events than the kernel queues. */
function eventsOf(descriptor: number): (number | 'lost')[] {
  const words = new Int32Array(EVENT_WORDS * 256);
  const events: (number | 'lost')[] = [];
  for (;;) {
    let size: number;
    try {
      size = readSync(descriptor, words);
    } catch (error) {
      if (errnoOf(error) === 'EAGAIN') return events;
      // This runs in a timer, so an exception would be uncaught.
      return ['lost'];
    }
    for (let at = 0; at < size / Int32Array.BYTES_PER_ELEMENT; at += EVENT_WORDS) {
      const [watch = 0, mask = 0] = words.subarray(at);
      events.push((mask & IN_Q_OVERFLOW) === 0 ? watch : 'lost');
    }
  }
}

const failed = (path: string, call: string, errno: number): ShimError =>
  unavailable(`${path}: ${call}: ${nameOfErrno(errno)}`, { errno: nameOfErrno(errno) });

const unavailable = (message: string, context: Readonly<Record<string, string>>): ShimError =>
  new ShimError(Code.FAILED_PRECONDITION, Reason.CGROUP_UNAVAILABLE, message, context);
