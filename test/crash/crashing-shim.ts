import { appendFileSync, existsSync, mkdtempSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { CriClient } from '../support/cri/client.ts';
import { type LogLine, ShimProcess } from '../support/cri/shim.ts';
import { ResizeClient } from '../support/resize-api-client.ts';

const RESIZE = '/run/cri-resize-shim/resize.sock';

/** What the journal has of a pod, as far as a test looks at it. */
export interface Record {
  readonly podUid: string;
  readonly transaction?: object;
  readonly resizes?: readonly object[];
  readonly volumes: Readonly<{
    [volume: string]: { readonly source: string; readonly policy: { readonly size?: number } };
  }>;
}

/** The sizes, in bytes, that a record has of volumes for which one was asked. */
export const sizesIn = ({ volumes }: Pick<Record, 'volumes'>): { readonly [volume: string]: number | undefined } =>
  Object.fromEntries(
    Object.entries(volumes).flatMap(([name, { source, policy }]) => (source === 'asked' ? [[name, policy.size]] : [])),
  );

/** A shim that ends where it is told to, and is started anew; with its clients, which are new with each start. */
export class CrashingShim {
  readonly #folder = mkdtempSync(join(tmpdir(), 'crash-'));
  readonly #state = join(this.#folder, 'state');
  readonly #crash = { armed: join(this.#folder, 'armed'), log: join(this.#folder, 'passed') };
  #process: ShimProcess | undefined;
  #beganWith: readonly Record[] = [];
  #cri: CriClient | undefined;
  #api: ResizeClient | undefined;

  constructor() {
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

  /** Starts it, and waits until what was cut off has been mended, and what it has seen is kept. False: it has ended before that. */
  async start(): Promise<boolean> {
    this.#close();
    this.#beganWith = this.records();
    const args = ['--resize-listen', `unix://${RESIZE}`, '--state-folder', this.#state];
    const armed = readFileSync(this.#crash.armed, 'utf8');
    const started = await ShimProcess.start({ args, crash: this.#crash }).catch((error: unknown) => {
      // It has come to where it was to end before it answered.
      if (readFileSync(this.#crash.armed, 'utf8') !== armed) return undefined;
      throw error;
    });
    this.#process = started;
    if (started === undefined) return false;
    this.#cri = new CriClient(started.address);
    this.#api = new ResizeClient(RESIZE);
    return this.logged(({ msg }) => msg === 'recovery finished');
  }

  /** Waits for a line of the log, of now or before. False: it has ended without. */
  async logged(fits: (line: LogLine) => boolean): Promise<boolean> {
    const started = this.#process;
    if (started === undefined) return false;
    return Promise.race([started.waitForLog(fits).then(() => true), started.exited.then(() => false)]);
  }

  /** What the journal had of all pods when this process was started. */
  get beganWith(): readonly Record[] {
    return this.#beganWith;
  }

  /** Waits for its end. Throws when that was no kill. */
  async killed(): Promise<void> {
    await this.#process?.exited;
    const { signalCode = 'SIGKILL', exitCode = null } = this.#process?.process ?? {};
    if (signalCode !== 'SIGKILL') throw new Error(`the shim ended with ${exitCode ?? signalCode}`);
  }

  get isAlive(): boolean {
    return this.#process?.process.signalCode === null && this.#process.process.exitCode === null;
  }

  /** It ends at this point. */
  arm(point: string): void {
    writeFileSync(this.#crash.armed, point);
  }

  disarm(): void {
    this.arm('');
  }

  /** Whether it is still to come to this point. */
  isArmed(point: string): boolean {
    const [name] = point.split('#');
    return readFileSync(this.#crash.armed, 'utf8')
      .split('\n')
      .some((line) => line.startsWith(`${name}#`) && !line.endsWith('SIGSTOP'));
  }

  /** It halts at this point; it may end before. Resolves when it has done either. */
  async halt(point: string, meanwhile: () => void): Promise<void> {
    appendFileSync(this.#crash.armed, `\n${point}#1 SIGSTOP`);
    const { pid } = this.#process!.process;
    // Nobody is told that a process has been halted but its parent, and Node does not pass it on.
    while (this.isAlive && !/^\d+ \(.*\) T /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))) await pause(2);
    if (!this.isAlive) return;
    meanwhile();
    process.kill(pid!, 'SIGCONT');
  }

  clearPassed(): void {
    writeFileSync(this.#crash.log, '');
  }

  /** The points that were passed, each with how often it had been by then: `name#N`. */
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

  /** What the journal has, of all pods. */
  records(): Record[] {
    if (!existsSync(this.#state)) return [];
    const files = readdirSync(this.#state).filter((name) => name.endsWith('.json'));
    return files.map((name) => JSON.parse(readFileSync(join(this.#state, name), 'utf8')) as Record);
  }

  /** Other files than records: what a crash has left half-written. */
  leftovers(): string[] {
    return existsSync(this.#state) ? readdirSync(this.#state).filter((name) => !name.endsWith('.json')) : [];
  }

  /** The log of the process that runs now, for whoever looks for what went wrong. */
  complaints(): string[] {
    const lines = this.#process?.log ?? [];
    return lines.filter(({ level }) => level !== 'info').map((line) => JSON.stringify(line));
  }

  async stop(): Promise<void> {
    this.#close();
    const code = await this.#process?.stop();
    if (code !== 0) throw new Error(`the shim ended with ${code}`);
  }

  /** One that has learned nothing yet takes its place. */
  async restart(): Promise<void> {
    await this.stop();
    if (!(await this.start())) throw new Error('the shim has ended at its start');
  }

  #close(): void {
    this.#cri?.close();
    this.#api?.close();
    this.#cri = undefined;
    this.#api = undefined;
  }
}
