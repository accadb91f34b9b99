import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { finished } from 'node:stream/promises';
import { execa } from 'execa';
import { messageOf, NodeError } from '../../tools/download/errors.ts';

/** How a program ended: its output, and why it failed. */
export interface Ended {
  readonly output: string;
  /** Undefined if it exited with 0. */
  readonly failure: string | undefined;
}

/** Runs a program until it ends or its deadline is over. */
export async function runToEnd(
  file: string,
  args: readonly string[],
  deadlineMs: number,
  signal: AbortSignal,
): Promise<Ended> {
  const result = await execa(file, args, {
    stdin: 'ignore',
    all: true,
    timeout: deadlineMs,
    killSignal: 'SIGKILL',
    cancelSignal: signal,
    reject: false,
  });
  signal.throwIfAborted();
  const output = result.all;
  if (result.timedOut) return { output, failure: `it did not end within ${deadlineMs / 1000} s` };
  if (!result.failed) return { output, failure: undefined };
  if (result.exitCode === undefined) return { output, failure: result.shortMessage };
  return { output, failure: `it exited with ${result.exitCode}` };
}

const START_MS = 30_000;
const STOP_MS = 20_000;

export interface ServiceStart {
  readonly what: string;
  readonly file: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** The file for its output. */
  readonly log: string;
  /** A line of standard error that it prints when it is ready. */
  readonly ready: RegExp;
  readonly signal: AbortSignal;
}

/** A program that runs until it is stopped. */
export class Service {
  /** Resolves when the program has ended. */
  readonly ended: Promise<void>;
  #hasEnded = false;

  private constructor(
    private readonly what: string,
    private readonly child: ReturnType<typeof Service.spawn>,
    private readonly logged: Promise<unknown>,
    /** The text that {@link ServiceStart.ready} captured. */
    readonly captured: string,
  ) {
    this.ended = child.then(() => void (this.#hasEnded = true));
  }

  private static spawn({ file, args, env = {}, signal }: ServiceStart) {
    return execa(file, args, {
      stdin: 'ignore',
      stdout: 'ignore',
      env,
      buffer: false,
      cancelSignal: signal,
      forceKillAfterDelay: STOP_MS,
      reject: false,
    });
  }

  /** Starts a program. Resolves when it is ready. */
  static async start(start: ServiceStart): Promise<Service> {
    const { what, log, ready } = start;
    const child = Service.spawn(start);
    const file = createWriteStream(log);
    child.stderr.pipe(file);
    const lines = createInterface({ input: child.stderr });
    const limit = AbortSignal.timeout(START_MS);
    const found = new Promise<string>((resolve) => {
      lines.on('line', (line) => {
        const match = ready.exec(line);
        if (match !== null) resolve(match[1] ?? '');
      });
    });
    try {
      const captured = await Promise.race([
        found,
        child.then(({ exitCode, shortMessage = '' }) => {
          throw new Error(exitCode === undefined ? shortMessage : `it exited with ${exitCode}`);
        }),
        once(limit, 'abort').then(() => {
          throw new Error(`it was not ready within ${START_MS / 1000} s`);
        }),
      ]);
      return new Service(what, child, finished(file), captured);
    } catch (error) {
      child.kill('SIGKILL');
      throw new NodeError(`cannot start ${what}: ${messageOf(error)}; its output is in ${log}`);
    }
  }

  /** Stops the program. Returns what is wrong with its end. */
  async stop(): Promise<string | undefined> {
    const hasEnded = this.#hasEnded;
    this.child.kill('SIGTERM');
    const { exitCode, signal } = await this.child;
    await this.logged;
    const end = signal === undefined ? `exited with ${exitCode ?? 'nothing'}` : `ended by ${signal}`;
    if (hasEnded) return `${this.what} ${end} before it was stopped`;
    return exitCode === 0 || signal === 'SIGTERM' ? undefined : `${this.what} ${end} after SIGTERM`;
  }
}
