import type { Options } from 'execa';
import { execa } from 'execa';
import * as z from 'zod';

/** One operation of a client through the shim, and whether the result was as expected. */
export const checkResult = z.object({
  name: z.string(),
  ms: z.number(),
  /** The reason of the failure, or null. */
  failure: z.string().nullable(),
});
export type CheckResult = z.output<typeof checkResult>;
export const checkResults = z.array(checkResult);

/** Runs checks one after the other and stores their results. A failed check does not stop the others. */
export class CheckList {
  readonly results: CheckResult[] = [];

  constructor(private readonly say: (line: string) => void) {}

  /** @param action throws if a result is not as expected */
  async check(name: string, action: () => Promise<void>): Promise<void> {
    const start = performance.now();
    let failure: string | null = null;
    try {
      await action();
    } catch (error) {
      failure = error instanceof Error ? error.message : String(error);
      this.say(`${name}: FAILED: ${failure}`);
    }
    this.results.push({ name, ms: Math.round(performance.now() - start), failure });
  }
}

/** A value that one check determines and later checks use. */
export class Found<T> {
  private found: T | undefined;

  constructor(private readonly what: string) {}

  set(value: T): T {
    this.found = value;
    return value;
  }

  /** @throws Error if the check that determines it has failed */
  get(): T {
    if (this.found === undefined) throw new Error(`no ${this.what} is known: see the failed check above`);
    return this.found;
  }
}

/** A command-line client of containerd's or the shim's socket. */
export interface Client {
  /** Returns the standard output of a call that must succeed. */
  run(...args: readonly string[]): Promise<string>;
  /** Returns the standard output of a call that must succeed, as bytes. */
  bytes(...args: readonly string[]): Promise<Uint8Array>;
  /** Returns standard output, standard error and exit code of a call that may fail. */
  attempt(args: readonly string[], input?: string): Promise<Attempt>;
  /** Starts a call that runs until the test stops it. */
  follow(...args: readonly string[]): Follower;
}

export interface Attempt {
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number | undefined;
}

const callLimitMs = 60_000;

export function crictl(endpoint: string): Client {
  return client('crictl', ['--runtime-endpoint', endpoint, '--image-endpoint', endpoint]);
}

/** ctr in the namespace of the CRI pods. */
export function ctr(endpoint: string): Client {
  return client('ctr', ['--address', endpoint.replace(/^unix:\/\//, ''), '--namespace', 'k8s.io']);
}

function client(file: string, global: readonly string[]): Client {
  const options = { timeout: callLimitMs, stripFinalNewline: false } satisfies Options;
  return {
    async run(...args) {
      return (await execa(file, [...global, ...args], { ...options, stdin: 'ignore' })).stdout;
    },
    async bytes(...args) {
      return (await execa(file, [...global, ...args], { ...options, stdin: 'ignore', encoding: 'buffer' })).stdout;
    },
    async attempt(args, input = '') {
      const { stdout, stderr, exitCode } = await execa(file, [...global, ...args], {
        ...options,
        input,
        reject: false,
      });
      return { stdout, stderr, exitCode };
    },
    follow: (...args) => new Follower(file, [...global, ...args]),
  };
}

/** The growing standard output of a running call. */
export class Follower {
  private readonly process;
  private readonly waiting = new Set<() => void>();
  private text = '';
  private errors = '';
  private ended = false;

  constructor(
    private readonly file: string,
    private readonly args: readonly string[],
  ) {
    this.process = execa(file, args, { reject: false, buffer: false, stdin: 'ignore' });
    this.process.stdout.setEncoding('utf8').on('data', (chunk: string) => {
      this.text += chunk;
      this.wake();
    });
    this.process.stderr.setEncoding('utf8').on('data', (chunk: string) => (this.errors += chunk));
    this.process.nodeChildProcess.on('close', () => {
      this.ended = true;
      this.wake();
    });
  }

  get output(): string {
    return this.text;
  }

  /**
   * Resolves when the output contains `part`. @throws Error if it does not within the time, or if the call ends before
   */
  async until(part: string | RegExp, limitMs = callLimitMs): Promise<void> {
    const has = (): boolean => (typeof part === 'string' ? this.text.includes(part) : part.test(this.text));
    const limit = AbortSignal.timeout(limitMs);
    while (!has()) {
      if (this.ended || limit.aborted)
        throw new Error(this.complaint(String(part), this.ended ? 'it ended' : 'in time'));
      await this.change(limit);
    }
  }

  /** Repeats `action` until the call prints output, which shows that the call is connected. */
  async firstOutput(action: () => Promise<unknown>, tries = 20): Promise<void> {
    for (let made = 0; made < tries && this.text === '' && !this.ended; made++) await action();
    if (this.text === '') throw new Error(this.complaint('anything', `${tries} events`));
  }

  async end(): Promise<void> {
    this.process.kill('SIGTERM');
    await this.process;
  }

  private complaint(wanted: string, when: string): string {
    return `"${this.file} ${this.args.join(' ')}" did not print ${wanted} (${when}); its output:\n${this.text}${this.errors}`;
  }

  private change(limit: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        this.waiting.delete(done);
        limit.removeEventListener('abort', done);
        resolve();
      };
      this.waiting.add(done);
      limit.addEventListener('abort', done);
    });
  }

  private wake(): void {
    for (const done of [...this.waiting]) done();
  }
}
