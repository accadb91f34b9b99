import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../../../src/core/errors.ts';
import type { Outcome } from '../target.ts';
import { Finding } from '../target.ts';
import { tearFile } from './node.ts';
import { Probes } from './probes.ts';
import { play, sessionOf } from './session.ts';
import { FuzzedShim } from './shim.ts';

/** Connections at the same time. */
const CONNECTIONS = 16;
/** docs/limits.md: what the suite `limits` allows. */
const MOST_MIB = 150;
const PROBE_EVERY_MS = 250;
const SAY_MS = 10_000;
/** Descriptors of connections that are about to close do not count as a leak. */
const SPARE_DESCRIPTORS = 8;

export interface ProgramJob {
  readonly seed: number;
  /** Number of inputs to send, in as many sessions as needed. */
  readonly inputs: number;
  /** Plays only this session. */
  readonly only: number | undefined;
  /** The shipped program. */
  readonly program: string;
}

/** Feeds the shipped program through all its sockets, over many connections at once. */
export async function runProgram(job: ProgramJob, say: (text: string) => void): Promise<Outcome> {
  const run = new ProgramRun(job, await FuzzedShim.start(job.program, job.seed), say);
  try {
    return await run.outcome();
  } finally {
    await run.close();
  }
}

class ProgramRun {
  readonly #job: ProgramJob;
  readonly #shim: FuzzedShim;
  readonly #probes: Probes;
  readonly #say: (text: string) => void;
  readonly #started = Date.now();
  readonly #open = new Set<number>();
  #next: number;
  #sent = 0;
  #sessions = 0;
  #finding: Error | undefined;
  #isOver = false;
  #isStopping = false;
  #memory = { now: 0, most: 0 };

  constructor(job: ProgramJob, shim: FuzzedShim, say: (text: string) => void) {
    this.#job = job;
    this.#shim = shim;
    this.#say = say;
    this.#next = job.only ?? 0;
    this.#probes = new Probes(shim.addresses);
    void shim.exited.then((end) => {
      if (!this.#isStopping) this.#fail(new Finding(end));
    });
  }

  async outcome(): Promise<Outcome> {
    await this.#probes.ready();
    const before = this.#shim.descriptors();
    const watch = this.#watch();
    const lanes = this.#job.only === undefined ? CONNECTIONS : 1;
    await Promise.all(Array.from({ length: lanes }, () => this.#lane()));
    this.#isOver = true;
    await watch;
    if (this.#finding === undefined) await this.#finish(before).catch((error: unknown) => this.#fail(error));
    const { inputs, summary } = { inputs: this.#sent, summary: this.#summary() };
    if (this.#finding === undefined) return { target: 'program', inputs, summary };
    return { target: 'program', inputs, summary, failure: await this.#explain(this.#finding) };
  }

  /** Plays sessions one after the other. */
  async #lane(): Promise<void> {
    while (!this.#hasEnough && this.#finding === undefined) {
      const index = this.#next;
      this.#next += 1;
      this.#open.add(index);
      const session = sessionOf(this.#job.seed, index);
      if (index % 4 === 0) tearFile(this.#shim.folders, session.random);
      try {
        const sent = await play(session, this.#shim.addresses);
        this.#sent += sent;
        this.#sessions += 1;
      } catch (error) {
        // If the process has ended, this explains a refused connection.
        if (!(error instanceof Finding)) await Promise.race([this.#shim.exited, delay(1000)]);
        this.#fail(error);
        return;
      }
      this.#close(index);
    }
  }

  /** After a failure, the list of open sessions remains. */
  #close(index: number): void {
    if (this.#finding === undefined) this.#open.delete(index);
  }

  get #hasEnough(): boolean {
    return this.#job.only === undefined ? this.#sent >= this.#job.inputs : this.#sessions > 0;
  }

  /** Calls the probes and checks memory and log until all inputs are sent. */
  async #watch(): Promise<void> {
    let said = Date.now();
    while (!this.#isOver && this.#finding === undefined) {
      await delay(PROBE_EVERY_MS);
      await this.#probe().catch((error: unknown) => this.#fail(error));
      if (Date.now() - said < SAY_MS) continue;
      said = Date.now();
      this.#say(`program: ${this.#summary()}`);
    }
  }

  async #probe(): Promise<void> {
    await this.#probes.all();
    const { internal, isAlive } = this.#shim;
    if (internal !== undefined) throw new Finding(internal);
    if (!isAlive) return;
    this.#memory = this.#shim.memory();
    if (this.#memory.most > MOST_MIB) throw new Finding(`${this.#memory.most.toFixed(0)} MiB of resident memory`);
  }

  /** The resources in use after the last connection has ended. */
  async #finish(before: number): Promise<void> {
    const deadline = Date.now() + 10_000;
    while (this.#shim.descriptors() > before + SPARE_DESCRIPTORS && Date.now() < deadline) await delay(100);
    const left = this.#shim.descriptors() - before;
    if (left > SPARE_DESCRIPTORS) throw new Finding(`${left} more descriptors than at first`);
    await this.#probe();
    this.#probes.close();
    this.#isStopping = true;
    const wrong = await this.#shim.stop();
    if (wrong !== undefined) throw new Finding(wrong);
  }

  #fail(error: unknown): void {
    if (this.#isOver && this.#finding === undefined && !(error instanceof Finding)) return;
    this.#finding ??= error instanceof Error ? error : new Error(messageOf(error));
  }

  #summary(): string {
    const seconds = (Date.now() - this.#started) / 1000;
    const speed = `${this.#sent} inputs in ${seconds.toFixed(0)} s, ${(this.#sent / seconds).toFixed(0)} a second`;
    const memory = `${this.#memory.now.toFixed(0)} MiB resident, at most ${this.#memory.most.toFixed(0)}`;
    return `${speed}; ${this.#sessions} connections; ${memory}`;
  }

  /** Replays the open sessions one by one with a new program, to find the one that causes the failure. */
  async #explain(finding: Error): Promise<NonNullable<Outcome['failure']>> {
    const open = [...this.#open];
    const { seed, program } = this.#job;
    const lines = [
      `program: FAILED: ${finding.message}`,
      ...this.#shim.lines,
      'the last mutated answers of the runtime:',
    ];
    lines.push(...this.#shim.backend.recent.slice(-10));
    let index = open[0] ?? 0;
    if (this.#job.only === undefined)
      for (const candidate of open) {
        const again = await runProgram({ seed, inputs: 1, only: candidate, program }, () => undefined);
        if (again.failure === undefined) continue;
        index = candidate;
        lines.push(`session ${candidate} alone fails alike: ${again.failure.lines[0] ?? ''}`);
        break;
      }
    lines.push(`open sessions: ${open.join(', ')}; session ${index}:`, ...describeSession(seed, index));
    return { index, lines };
  }

  async close(): Promise<void> {
    this.#isStopping = true;
    this.#probes.close();
    await this.#shim.close();
  }
}

function describeSession(seed: number, index: number): string[] {
  const { socket, inputs, settings } = sessionOf(seed, index);
  return [`${socket} SETTINGS ${JSON.stringify(settings)}`, ...inputs.map((input) => input.toString('hex'))];
}
