import { stat } from 'node:fs/promises';
import { messageOf } from '../core/errors/index.ts';
import type { Counters, Log } from '../observe/index.ts';
import { type DatagramSender, openDatagramSender } from './datagram.ts';

/** Whoever started us and wants to know how we are: sd_notify(3). Nothing here ever rejects: calls are served without, too. */
export interface Supervisor {
  /** We serve. From now on the watchdog hears from us, as long as we are alive. */
  ready(status: string): Promise<void>;
  /** We go, and may take so many milliseconds: more than the unit allows, where it says less. */
  stopping(milliseconds: number, status: string): Promise<void>;
  /** Nothing is said any more. */
  close(): void;
}

export interface SupervisorParts {
  readonly log: Log;
  readonly counters: Counters;
}

/** The variables of sd_notify(3) and sd_watchdog_enabled(3). */
export interface SupervisorVariables {
  /** Absolute path, or `@` and an abstract name. */
  readonly socket: string;
  /** Milliseconds within which the watchdog has to hear from us; undefined where there is none. */
  readonly watchdogMs: number | undefined;
}

/** Nobody asks. */
export const noSupervisor: Supervisor = {
  ready: () => Promise.resolve(),
  stopping: () => Promise.resolve(),
  close: () => undefined,
};

/**
 * Takes what systemd asks for out of the environment: our children are not meant. Undefined where nobody asks. A watchdog that waits
 * for another process (WATCHDOG_PID) is not ours to feed.
 */
export function takeSupervisorVariables(env: NodeJS.ProcessEnv, pid: number): SupervisorVariables | undefined {
  const { NOTIFY_SOCKET: socket, WATCHDOG_USEC: microseconds, WATCHDOG_PID: watched } = env;
  for (const name of ['NOTIFY_SOCKET', 'WATCHDOG_USEC', 'WATCHDOG_PID']) Reflect.deleteProperty(env, name);
  if (socket === undefined || socket === '') return undefined;
  const isWatched = /^[1-9]\d{0,15}$/.test(microseconds ?? '') && (watched === undefined || watched === String(pid));
  return { socket, watchdogMs: isWatched ? Number(microseconds) / 1000 : undefined };
}

/** Says nothing where nobody asks. */
export function superviseBy(variables: SupervisorVariables | undefined, parts: SupervisorParts): Supervisor {
  return variables === undefined ? noSupervisor : new Notifier(variables, parts);
}

class Notifier implements Supervisor {
  readonly #variables: SupervisorVariables;
  readonly #parts: SupervisorParts;
  #sender: Promise<DatagramSender> | undefined;
  #beats: NodeJS.Timeout | undefined;
  #isBeating = false;
  #hasFailed = false;

  constructor(variables: SupervisorVariables, parts: SupervisorParts) {
    this.#variables = variables;
    this.#parts = parts;
  }

  async ready(status: string): Promise<void> {
    const { watchdogMs } = this.#variables;
    await this.#tell('READY=1', `STATUS=${status}`);
    // Twice within its time, as sd_watchdog_enabled(3) asks for.
    if (watchdogMs !== undefined) this.#beats ??= setInterval(() => void this.#beat(), watchdogMs / 2).unref();
  }

  stopping(milliseconds: number, status: string): Promise<void> {
    return this.#tell('STOPPING=1', `EXTEND_TIMEOUT_USEC=${Math.round(milliseconds * 1000)}`, `STATUS=${status}`);
  }

  close(): void {
    clearInterval(this.#beats);
    void this.#sender?.then(
      (sender) => sender.close(),
      () => undefined,
    );
    this.#sender = undefined;
  }

  /**
   * The timer shows that the event loop turns. Files are looked at by libuv's workers, which also do all that the shim writes: one
   * that comes back shows that they turn, too. Until it does the watchdog hears nothing.
   */
  async #beat(): Promise<void> {
    if (this.#isBeating) return;
    this.#isBeating = true;
    await stat('/').catch(() => undefined);
    this.#isBeating = false;
    await this.#tell('WATCHDOG=1');
  }

  async #tell(...assignments: readonly string[]): Promise<void> {
    try {
      this.#sender ??= openDatagramSender(this.#variables.socket);
      await (await this.#sender).send(assignments.map((line) => line.replaceAll('\n', ' ')).join('\n'));
    } catch (error) {
      if (this.#hasFailed) return;
      this.#hasFailed = true;
      this.#parts.counters.notifyFault();
      this.#parts.log.warn({ error: messageOf(error) }, 'systemd cannot be told how the shim is');
    }
  }
}
