import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { PassedOn } from '../held-socket.ts';
import { CriClient } from './client.ts';

export type LogLine = Readonly<Record<string, unknown>> & { readonly msg: string; readonly level: string };

/** The daemon as it is shipped, as a process of its own, with the log it writes. */
export class ShimProcess {
  readonly log: LogLine[] = [];
  readonly exited: Promise<number | null>;
  readonly #waiting = new Set<() => void>();

  private constructor(
    readonly process: ChildProcess,
    readonly address: string,
  ) {
    this.exited = once(process, 'exit').then(([code]) => code as number | null);
    if (process.stderr === null) throw new Error('the shim has no stderr');
    createInterface({ input: process.stderr }).on('line', (line) => {
      this.log.push(parseLine(line));
      for (const wake of this.#waiting) wake();
    });
  }

  /**
   * Starts the shim on a socket of its own, and waits until it says that it serves, and, but where there is no backend yet,
   * answers as the backend does. Not by calling it until it does: a client that is refused takes longer each time.
   */
  static async start(
    options: {
      listen?: string;
      endpoint?: string;
      args?: readonly string[];
      wait?: 'answering' | 'serving';
      /** The build that may be stopped anywhere: where it ends, and what it has passed (src/core/crash-points/index.ts). */
      crash?: { readonly armed: string; readonly log: string };
      /** What it is started with, as by systemd: `listen` is then where that is bound. */
      passedOn?: PassedOn;
    } = {},
  ): Promise<ShimProcess> {
    const listen = options.listen ?? 'unix:///run/cri-resize-shim/cri-resize-shim.sock';
    const endpoint = options.endpoint ?? 'unix:///run/containerd/containerd.sock';
    const given = options.args ?? [];
    // Of its own, or none: several shims run side by side.
    const resize = given.includes('--resize-listen') ? [] : ['--resize-listen', ''];
    const args = ['--listen', listen, '--container-runtime-endpoint', endpoint, ...resize, ...given];
    const { crash } = options;
    const program = daemonFile(crash === undefined ? 'cri-resize-shim.js' : 'tools/cri-resize-shim-crash.js');
    const points = crash && { CRI_RESIZE_SHIM_CRASH: crash.armed, CRI_RESIZE_SHIM_CRASH_LOG: crash.log };
    const { passedOn } = options;
    const env = { ...process.env, ...points, ...passedOn?.env };
    const [command = '', ...rest] = [...(passedOn?.before ?? []), process.execPath, program, ...args];
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
    throw new Error(`the shim ended with ${code ?? 'a signal'}: ${this.log.map((line) => line.msg).join('\n')}`);
  }

  /**
   * The first, second, ... line that fits, now or when it comes. Lines are counted since the shim started, so a line that is already
   * there is never taken for the next one.
   */
  async waitForLog(fits: (line: LogLine) => boolean, number = 1, timeoutMs = 30_000): Promise<LogLine> {
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
          reject(new Error(`no such line in the shim's log in ${timeoutMs} ms`)),
        );
      });
    }
  }

  /** Leaves the shim running when this process ends. */
  leave(): void {
    this.process.unref();
    this.process.stderr?.destroy();
  }

  /** SIGTERM; gives the exit code. */
  async stop(): Promise<number | null> {
    this.process.kill('SIGTERM');
    return this.exited;
  }
}

async function answers(address: string): Promise<void> {
  const client = new CriClient(address);
  try {
    await client.ready(30_000);
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
