import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { PassedOn } from '../daemon/held-socket.ts';
import { CriClient } from './client.ts';

export type LogLine = Readonly<Record<string, unknown>> & { readonly msg: string; readonly level: string };

/** The shipped daemon as a separate process, with its log. */
export class ShimProcess {
  /** All shims that this process has started. */
  static readonly started: ShimProcess[] = [];
  readonly log: LogLine[] = [];
  readonly exited: Promise<number | null>;
  readonly #waiting = new Set<() => void>();

  private constructor(
    readonly process: ChildProcess,
    readonly address: string,
  ) {
    this.exited = once(process, 'exit').then(([code]) => code as number | null);
    if (process.stderr === null) throw new Error('the shim has no stderr');
    ShimProcess.started.push(this);
    createInterface({ input: process.stderr }).on('line', (line) => {
      this.log.push(parseLine(line));
      for (const wake of this.#waiting) wake();
    });
  }

  /**
   * Starts the shim on its own socket. Waits until it reports that it serves and, unless no backend runs yet, answers
   * as the backend does. Does not poll by calls, because a rejected client waits longer each time.
   */
  static async start(
    options: {
      listen?: string;
      endpoint?: string;
      args?: readonly string[];
      wait?: 'answering' | 'serving';
      /**
       * The build that can be stopped at any crash point: where it stops, and which points it has passed
       * (src/core/crash-points.ts).
       */
      crash?: { readonly armed: string; readonly log: string };
      /** A build that stops at the point in `armed` and writes passed points to `log` (src/core/crash-points.ts). */
      nodeArgs?: readonly string[];
      /** Sockets and variables as passed by systemd. `listen` is then the address where the socket is bound. */
      passedOn?: PassedOn;
    } = {},
  ): Promise<ShimProcess> {
    const listen = options.listen ?? 'unix:///run/cri-resize-shim/cri-resize-shim.sock';
    const endpoint = options.endpoint ?? 'unix:///run/containerd/containerd.sock';
    const given = options.args ?? [];
    // A separate resize socket or none, because several shims run concurrently.
    const resize = given.includes('--resize-listen') ? [] : ['--resize-listen', ''];
    const args = ['--listen', listen, '--container-runtime-endpoint', endpoint, ...resize, ...given];
    const { crash, nodeArgs = [] } = options;
    const program = daemonFile(crash === undefined ? 'cri-resize-shim.js' : 'tools/cri-resize-shim-crash.js');
    const points = crash && { CRI_RESIZE_SHIM_CRASH: crash.armed, CRI_RESIZE_SHIM_CRASH_LOG: crash.log };
    const { passedOn } = options;
    const env = { ...process.env, ...points, ...passedOn?.env };
    const [command = '', ...rest] = [...(passedOn?.before ?? []), process.execPath, ...nodeArgs, program, ...args];
    const stdio = ['ignore', 'inherit', 'pipe', ...(passedOn?.descriptors ?? [])] as const;
    const child = spawn(command, rest, { stdio: [...stdio], env });
    const shim = new ShimProcess(child, listen);
    try {
      const serving = shim.waitForLog(({ msg }) => msg === 'serving');
      const ready = options.wait === 'serving' ? serving : serving.then(() => answers(listen));
      await Promise.race([ready, shim.#failure()]);
    } catch (error) {
      child.kill('SIGKILL');
      throw error;
    }
    return shim;
  }

  async #failure(): Promise<never> {
    const code = await this.exited;
    throw new Error(`the shim exited with ${code ?? 'a signal'}: ${this.log.map((line) => line.msg).join('\n')}`);
  }

  /**
   * Returns the nth log line that matches, now or when it is written. Lines are counted since the start of the shim, so
   * an old line is never taken for a new one.
   */
  async waitForLog(fits: (line: LogLine) => boolean, number = 1, timeoutMs = 120_000): Promise<LogLine> {
    const deadline = AbortSignal.timeout(timeoutMs);
    for (;;) {
      const line = this.log.filter(fits)[number - 1];
      if (line !== undefined) return line;
      await new Promise<void>((resolve, reject) => {
        const wake = (): void => {
          this.#waiting.delete(wake);
          resolve();
        };
        this.#waiting.add(wake);
        deadline.addEventListener('abort', () =>
          reject(new Error(`no matching line in the shim's log within ${timeoutMs} ms`)),
        );
      });
    }
  }

  /** Keeps the shim running after the end of this process. */
  leave(): void {
    this.process.unref();
    this.process.stderr?.destroy();
  }

  /** Sends SIGTERM. Returns the exit code. */
  async stop(): Promise<number | null> {
    this.process.kill('SIGTERM');
    return this.exited;
  }
}

async function answers(address: string): Promise<void> {
  const client = new CriClient(address);
  try {
    await client.ready(120_000);
    await client.version();
  } finally {
    client.close();
  }
}

function parseLine(line: string): LogLine {
  try {
    return JSON.parse(line) as LogLine;
  } catch {
    return { msg: line, level: 'none' };
  }
}

function daemonFile(name: string): string {
  for (let folder = dirname(fileURLToPath(import.meta.url)); ; folder = dirname(folder)) {
    const file = join(folder, 'dist', name);
    if (existsSync(file)) return file;
    if (folder === dirname(folder)) throw new Error(`dist/${name} is missing: npm run build`);
  }
}
