import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, openSync, readFileSync, rmSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** TMPFS_MAGIC of linux/magic.h. */
const TMPFS_MAGIC = 0x01021994;

const isInMemory = (folder: string): boolean => statfsSync(folder).type === TMPFS_MAGIC;

/**
 * The processes and folders of one run. None of them remains, however the run ends (return, exception, signal): the
 * last cleanup is synchronous and runs at the exit of this process.
 */
export class Children {
  /** For sockets, logs and containerd's state. */
  readonly folder = mkdtempSync(join(tmpdir(), 'cri-bench-'));
  readonly #running = new Set<Child>();
  readonly #folders = [this.folder];

  constructor() {
    for (const [signal, number] of [
      ['SIGINT', 2],
      ['SIGTERM', 15],
      ['SIGHUP', 1],
    ] as const) {
      process.once(signal, () => process.exit(128 + number));
    }
    process.on('exit', () => {
      for (const child of this.#running) child.process.kill('SIGKILL');
      // Retries, because a killed process may still be writing.
      for (const folder of this.#folders) rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    });
  }

  path(name: string): string {
    return join(this.folder, name);
  }

  /**
   * Creates a folder on a disk. /tmp may be in memory, but /var/tmp may not (hier(7)). Throws if it is in memory
   * nevertheless.
   */
  folderOnDisk(): string {
    const folder = this.#folderIn('/var/tmp');
    if (isInMemory(folder)) throw new Error(`${folder} is in memory, but the measurement needs a disk`);
    return folder;
  }

  /**
   * Creates a folder in memory, for files that replace those of the kernel and must not wait for a disk. Throws without
   * one.
   */
  folderInMemory(): string {
    const folder = this.#folderIn('/dev/shm');
    if (!isInMemory(folder)) throw new Error(`${folder} is not in memory (shm_overview(7))`);
    return folder;
  }

  #folderIn(parent: string): string {
    const folder = mkdtempSync(join(parent, 'cri-bench-'));
    this.#folders.push(folder);
    return folder;
  }

  /** Starts a program. Its stderr goes to a file, because reading it would take time from the load client. */
  spawn(name: string, file: string, args: readonly string[], environment: NodeJS.ProcessEnv = {}): Child {
    const log = this.path(`${name}.log`);
    const stderr = openSync(log, 'a');
    // stdin is a pipe that ends with this process, and stdout reports when the program is ready.
    const child = new Child(
      name,
      log,
      spawn(file, args, { stdio: ['pipe', 'pipe', stderr], cwd: '/', env: { ...process.env, ...environment } }),
    );
    this.#running.add(child);
    void child.exited.then(() => this.#running.delete(child));
    return child;
  }
}

export class Child {
  readonly exited: Promise<void>;

  constructor(
    readonly name: string,
    readonly logFile: string,
    readonly process: ChildProcess,
  ) {
    this.exited = new Promise((resolve) => {
      process.once('exit', () => resolve());
      process.once('error', () => resolve());
    });
    process.stdout?.resume();
  }

  get pid(): number {
    const { pid } = this.process;
    if (pid === undefined) throw new Error(`${this.name} could not be started`);
    return pid;
  }

  /** Waits for `ready`, but not longer than the process lives. */
  async until<Value>(ready: Promise<Value>): Promise<Value> {
    const ended = this.exited.then((): never => {
      throw new Error(`${this.name} has exited; the end of its output:\n${this.lastOutput()}`);
    });
    return Promise.race([ready, ended]);
  }

  /** Waits for the first output on stdout. */
  async firstOutput(): Promise<void> {
    if (this.process.stdout !== null) await this.until(once(this.process.stdout, 'data'));
  }

  lastOutput(): string {
    return readFileSync(this.logFile, 'utf8').split('\n').slice(-15).join('\n');
  }

  async stop(): Promise<void> {
    this.process.kill('SIGTERM');
    await this.exited;
  }
}
