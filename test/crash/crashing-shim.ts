import { appendFileSync, existsSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { CriClient } from '../support/cri/client.ts';
import { type LogLine, ShimProcess } from '../support/cri/shim.ts';
import { ResizeClient } from '../support/resize-api/client.ts';

const RESIZE = '/run/cri-resize-shim/resize.sock';

/** The fields of a pod's journal record that tests read. */
export interface Record {
  readonly podUid: string;
  readonly transaction?: object;
  readonly holds?: readonly object[];
  readonly resizes?: readonly { readonly kind?: string }[];
  readonly volumes: Readonly<{
    [volume: string]: { readonly source: string; readonly policy: { readonly size?: number } };
  }>;
}

/** Returns the requested sizes of volumes in a record, in bytes. */
export const sizesIn = ({ volumes }: Pick<Record, 'volumes'>): { readonly [volume: string]: number | undefined } =>
  Object.fromEntries(
    Object.entries(volumes).flatMap(([name, { source, policy }]) => (source === 'asked' ? [[name, policy.size]] : [])),
  );

/** A recovery is repeated while the runtime is too busy to answer in time. */
const LONGEST_RECOVERY_MS = 120_000;

/** A shim that is killed at a crash point and started again, with new clients for each start. */
export class CrashingShim {
  readonly #folder = mkdtempSync(join(tmpdir(), 'crash-'));
  readonly #state: string;
  readonly #nodeArgs: readonly string[];
  readonly #crash = { armed: join(this.#folder, 'armed'), log: join(this.#folder, 'passed') };
  #process: ShimProcess | undefined;
  #recordsAtStart: readonly Record[] = [];
  #cri: CriClient | undefined;
  #api: ResizeClient | undefined;

  /** @param nodeArgs flags for Node */
  constructor({ state, nodeArgs = [] }: { readonly state?: string; readonly nodeArgs?: readonly string[] } = {}) {
    this.#state = state ?? join(this.#folder, 'state');
    this.#nodeArgs = nodeArgs;
    this.disarm();
    this.clearPassed();
  }

  get cri(): CriClient {
    if (this.#cri === undefined) throw new Error('the shim has not been started');
    return this.#cri;
  }

  get api(): ResizeClient {
    if (this.#api === undefined) throw new Error('the shim has not been started');
    return this.#api;
  }

  /** Starts the shim and waits until its recovery has finished. Returns false if it ended before that. */
  async start(): Promise<boolean> {
    this.#close();
    this.#recordsAtStart = this.records();
    const args = ['--resize-listen', `unix://${RESIZE}`, '--state-folder', this.#state];
    const armed = readFileSync(this.#crash.armed, 'utf8');
    const started = await ShimProcess.start({ args, crash: this.#crash, nodeArgs: this.#nodeArgs }).catch(
      (error: unknown) => {
        // The shim reached the armed point before it answered.
        if (readFileSync(this.#crash.armed, 'utf8') !== armed) return undefined;
        throw error;
      },
    );
    this.#process = started;
    if (started === undefined) return false;
    this.#cri = new CriClient(started.address);
    this.#api = new ResizeClient(RESIZE);
    // The first attempt is incomplete if a busy runtime does not answer in time; the shim repeats it.
    return this.logged(({ msg, complete }) => msg === 'recovery finished' && complete === true);
  }

  /** Waits for the nth line of the log that fits, also an earlier one. Returns false if the shim ended without it. */
  async logged(fits: (line: LogLine) => boolean, number = 1): Promise<boolean> {
    const started = this.#process;
    if (started === undefined) return false;
    const line = started.waitForLog(fits, number, LONGEST_RECOVERY_MS).then(() => true);
    return Promise.race([line, started.exited.then(() => false)]);
  }

  /** Returns how many lines of the log fit until now. */
  loggedTimes(fits: (line: LogLine) => boolean): number {
    return this.#process?.log.filter(fits).length ?? 0;
  }

  /** The journal records of all pods when this process was started. */
  get recordsAtStart(): readonly Record[] {
    return this.#recordsAtStart;
  }

  /** Waits until the shim was killed. Throws if it ended in another way. */
  async killed(): Promise<void> {
    await this.#process?.exited;
    const { signalCode = 'SIGKILL', exitCode = null } = this.#process?.process ?? {};
    if (signalCode !== 'SIGKILL') throw new Error(`the shim ended with ${exitCode ?? signalCode}`);
  }

  get isAlive(): boolean {
    return this.#process?.process.signalCode === null && this.#process.process.exitCode === null;
  }

  get pid(): number {
    const pid = this.#process?.process.pid;
    if (pid === undefined) throw new Error('the shim has not been started');
    return pid;
  }

  /** Lets the shim kill itself at this point. */
  arm(point: string): void {
    writeFileSync(this.#crash.armed, point);
  }

  disarm(): void {
    this.arm('');
  }

  /** Whether the shim has not reached this point yet. */
  isArmed(point: string): boolean {
    const [name] = point.split('#');
    return readFileSync(this.#crash.armed, 'utf8')
      .split('\n')
      .some((line) => line.startsWith(`${name}#`) && !line.endsWith('SIGSTOP'));
  }

  /** Stops the shim at this point, calls `meanwhile`, and continues it. Resolves also when the shim ends before. */
  async halt(point: string, meanwhile: () => void): Promise<void> {
    appendFileSync(this.#crash.armed, `\n${point}#1 SIGSTOP`);
    const { pid } = this.#process!.process;
    // Only the parent is notified that a process has stopped, and Node does not expose that.
    while (this.isAlive && !/^\d+ \(.*\) T /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))) await pause(2);
    if (!this.isAlive) return;
    meanwhile();
    process.kill(pid!, 'SIGCONT');
  }

  clearPassed(): void {
    writeFileSync(this.#crash.log, '');
  }

  /** Returns the passed points with the number of times so far: `name#N`. */
  passed(): string[] {
    const counts = new Map<string, number>();
    const names = readFileSync(this.#crash.log, 'utf8').split('\n').filter(Boolean);
    return names
      .filter((name) => name !== 'serving')
      .map((name) => {
        counts.set(name, (counts.get(name) ?? 0) + 1);
        return `${name}#${counts.get(name)}`;
      });
  }

  /** Returns the journal records of all pods. */
  records(): Record[] {
    if (!existsSync(this.#state)) return [];
    const files = readdirSync(this.#state).filter((name) => name.endsWith('.json'));
    return files.flatMap((name) => {
      const text = contentOf(join(this.#state, name));
      return text === undefined ? [] : [JSON.parse(text) as Record];
    });
  }

  /** Returns the files that are not records: those that a crash left half-written. */
  leftovers(): string[] {
    return existsSync(this.#state) ? readdirSync(this.#state).filter((name) => !name.endsWith('.json')) : [];
  }

  /** Returns the last lines in the log of the current process. */
  lastLines(count: number): string[] {
    return (this.#process?.log ?? []).slice(-count).map((line) => JSON.stringify(line));
  }

  /** Returns the warnings and errors in the log of the current process. */
  warnings(): string[] {
    const lines = this.#process?.log ?? [];
    return lines.filter(({ level }) => level !== 'info').map((line) => JSON.stringify(line));
  }

  async stop(): Promise<void> {
    this.#close();
    const code = await this.#process?.stop();
    if (code !== 0) throw new Error(`the shim ended with ${code}`);
  }

  /** Replaces the shim by a new process. */
  async restart(): Promise<void> {
    await this.stop();
    if (!(await this.start())) throw new Error('the shim ended at its start');
  }

  #close(): void {
    this.#cri?.close();
    this.#api?.close();
    this.#cri = undefined;
    this.#api = undefined;
  }
}

/** Undefined for a file that the shim has removed meanwhile. */
function contentOf(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
