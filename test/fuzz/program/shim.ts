import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { descriptorsOf } from '../../support/cri/client.ts';
import { memoryFolder } from '../memory-folder.ts';
import { HostileBackend } from './backend.ts';
import { type Folders, makeNode } from './node.ts';
import type { Addresses } from './session.ts';

const LAST_LINES = 60;
/** Logged for an error that the shim did not expect, in code that contains it. */
const INTERNAL = /internal error/;

/** The shipped program under test, its hostile runtime and its node. */
export class FuzzedShim {
  readonly folders: Folders;
  readonly backend: HostileBackend;
  readonly addresses: Addresses;
  /** Resolves with what ended the process. */
  readonly exited: Promise<string>;
  readonly #child: ChildProcess;
  readonly #folder: string;
  readonly #log: RunningLog;

  private constructor(
    parts: Pick<FuzzedShim, 'folders' | 'backend' | 'addresses'>,
    child: ChildProcess,
    folder: string,
    log: RunningLog,
  ) {
    this.folders = parts.folders;
    this.backend = parts.backend;
    this.addresses = parts.addresses;
    this.#child = child;
    this.#folder = folder;
    this.#log = log;
    this.exited = once(child, 'close').then(([code, signal]) => `the program ended with ${String(signal ?? code)}`);
  }

  static async start(program: string, seed: number): Promise<FuzzedShim> {
    const folder = memoryFolder('fuzz-program-');
    const folders = { cgroups: join(folder, 'cgroup'), kubelet: join(folder, 'kubelet') };
    makeNode(folders);
    const backend = await HostileBackend.listen(join(folder, 'backend.sock'), seed);
    const sockets = { cri: join(folder, 'run/cri.sock'), resize: join(folder, 'run/resize.sock') };
    const flags = {
      listen: `unix://${sockets.cri}`,
      'container-runtime-endpoint': `unix://${join(folder, 'backend.sock')}`,
      'resize-listen': `unix://${sockets.resize}`,
      'metrics-bind': '127.0.0.1:0',
      'cgroup-root': folders.cgroups,
      'cgroup-driver': 'cgroupfs',
      'kubelet-root': folders.kubelet,
      'state-folder': join(folder, 'state'),
      'reclaim-timeout': '100ms',
    };
    // The unit sets these variables.
    const env = { ...process.env, MALLOC_ARENA_MAX: '1', MALLOC_TRIM_THRESHOLD_: '65536' };
    const args = Object.entries(flags).flatMap(([name, value]) => [`--${name}`, value]);
    const child = spawn(process.execPath, [program, ...args], { stdio: ['ignore', 'ignore', 'pipe'], env, cwd: '/' });
    const log = new RunningLog(child);
    const metrics = await log.started();
    return new FuzzedShim({ folders, backend, addresses: { ...sockets, metrics } }, child, folder, log);
  }

  /** A line of the log that reports an internal error. */
  get internal(): string | undefined {
    return this.#log.internal;
  }

  /** The last lines of the log. */
  get lines(): readonly string[] {
    return this.#log.lines;
  }

  /** Resident memory in MiB: now, and the most so far. */
  memory(): { readonly now: number; readonly most: number } {
    const status = readFileSync(`/proc/${this.#child.pid}/status`, 'utf8');
    const of = (key: string): number =>
      Number(new RegExp(`^${key}:\\s+(\\d+)`, 'm').exec(status)?.[1] ?? Number.NaN) / 1024;
    return { now: of('VmRSS'), most: of('VmHWM') };
  }

  /** The number of open descriptors, without those of the node's cgroup files. */
  descriptors(): number {
    const { pid } = this.#child;
    return pid === undefined ? 0 : descriptorsOf(pid, this.folders.cgroups);
  }

  get isAlive(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Stops the program as systemd does. Returns what is wrong with its end. */
  async stop(): Promise<string | undefined> {
    this.#child.kill('SIGTERM');
    const end = await this.exited;
    return end.endsWith(' 0') ? undefined : `after SIGTERM, ${end}`;
  }

  async close(): Promise<void> {
    if (this.isAlive) {
      this.#child.kill('SIGKILL');
      await this.exited;
    }
    this.backend.close();
    if (existsSync(this.#folder)) rmSync(this.#folder, { recursive: true });
  }
}

/** The log of the program: its last lines, and the events that they report. */
class RunningLog {
  readonly lines: string[] = [];
  /** A line that reports an internal error. */
  internal: string | undefined;
  #port = 0;
  #isServing = false;
  readonly #child: ChildProcess;

  constructor(child: ChildProcess) {
    this.#child = child;
    if (child.stderr === null) throw new Error('the program has no stderr');
    createInterface({ input: child.stderr }).on('line', (line) => this.#line(line));
  }

  /** Waits until the sockets are open. Resolves with the port of the metrics. */
  async started(): Promise<number> {
    for (;;) {
      if (this.#isServing && this.#port > 0) return this.#port;
      const ended = await Promise.race([
        once(this.#child, 'log').then(() => false),
        once(this.#child, 'close').then(() => true),
      ]);
      if (ended) throw new Error(`the program ended at its start:\n${this.lines.join('\n')}`);
    }
  }

  #line(line: string): void {
    this.lines.push(line);
    if (this.lines.length > LAST_LINES) this.lines.shift();
    if (INTERNAL.test(line)) this.internal ??= line;
    if (this.#isServing && this.#port > 0) return;
    const { address = '', msg = '' } = parsed(line);
    if (msg === 'metrics are served') this.#port = Number(address.split(':').at(-1));
    if (msg === 'serving') this.#isServing = true;
    this.#child.emit('log');
  }
}

function parsed(line: string): { readonly msg?: string; readonly address?: string } {
  try {
    return JSON.parse(line) as { readonly msg?: string };
  } catch {
    return {};
  }
}
