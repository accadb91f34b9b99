import { write } from 'node:fs';
import { stat } from 'node:fs/promises';
import { promisify } from 'node:util';
import { messageOf } from '../errors.ts';
import type { Counters, Log } from '../observe/interfaces.ts';
import { type DatagramSender, openDatagramSender } from './datagram.ts';

/**
 * Notifies systemd, or the image's entry point, of the shim's state (sd_notify(3)). Apart from `check`, its methods
 * never reject.
 */
export interface Supervisor {
  /**
   * Rejects if notifications cannot be sent, because koffi cannot be loaded. The shim must not serve then: systemd
   * would end it at the start timeout, with its clients.
   */
  check(): Promise<void>;
  /** Reports that the shim serves calls, and starts to send watchdog notifications. */
  ready(status: string): Promise<void>;
  /** Reports that the shim is stopping, and extends the unit's stop timeout to some milliseconds. */
  stopping(milliseconds: number, status: string): Promise<void>;
  /** Stops all notifications. */
  close(): void;
}

export interface SupervisorOptions {
  readonly log: Log;
  readonly counters: Counters;
}

/** The variables of sd_notify(3) and sd_watchdog_enabled(3), and that of the image's entry point. */
export interface SupervisorVariables {
  /** Absolute path of a socket, or `@` and an abstract name; the descriptor of a pipe that the shim has inherited. */
  readonly receiver: string | number;
  /** Watchdog timeout in milliseconds; undefined if there is no watchdog. */
  readonly watchdogMs: number | undefined;
}

/** Used if systemd did not ask for notifications. */
export const noSupervisor: Supervisor = {
  check: () => Promise.resolve(),
  ready: () => Promise.resolve(),
  stopping: () => Promise.resolve(),
  close: () => undefined,
};

/**
 * Reads and removes the variables from the environment, because they are not for child processes. Undefined if neither
 * systemd nor the image's entry point asked for notifications. Ignores a watchdog for another process (WATCHDOG_PID).
 */
export function takeSupervisorVariables(env: NodeJS.ProcessEnv, pid: number): SupervisorVariables | undefined {
  const {
    CRI_RESIZE_SHIM_NOTIFY_FD: pipe,
    NOTIFY_SOCKET: socket,
    WATCHDOG_USEC: microseconds,
    WATCHDOG_PID: watched,
  } = env;
  for (const name of ['CRI_RESIZE_SHIM_NOTIFY_FD', 'NOTIFY_SOCKET', 'WATCHDOG_USEC', 'WATCHDOG_PID'])
    Reflect.deleteProperty(env, name);
  const receiver = /^\d{1,9}$/.test(pipe ?? '') ? Number(pipe) : socket;
  if (receiver === undefined || receiver === '') return undefined;
  const isWatched = /^[1-9]\d{0,15}$/.test(microseconds ?? '') && (watched === undefined || watched === String(pid));
  return { receiver, watchdogMs: isWatched ? Number(microseconds) / 1000 : undefined };
}

/** Returns a supervisor for the variables; without variables, one that does nothing. */
export function superviseBy(variables: SupervisorVariables | undefined, options: SupervisorOptions): Supervisor {
  return variables === undefined ? noSupervisor : new Notifier(variables, options);
}

class Notifier implements Supervisor {
  #sender: Promise<DatagramSender> | undefined;
  #heartbeat: NodeJS.Timeout | undefined;
  #isCheckingWorkers = false;
  #hasFailed = false;

  constructor(
    private readonly variables: SupervisorVariables,
    private readonly options: SupervisorOptions,
  ) {}

  async check(): Promise<void> {
    if (typeof this.variables.receiver === 'number') return;
    try {
      await import('koffi');
    } catch (error) {
      throw new Error(`systemd cannot be notified: koffi cannot be loaded: ${messageOf(error)}`, { cause: error });
    }
  }

  async ready(status: string): Promise<void> {
    const { watchdogMs } = this.variables;
    await this.#notify('READY=1', `STATUS=${status}`);
    // Twice per timeout, as sd_watchdog_enabled(3) recommends.
    if (watchdogMs !== undefined)
      this.#heartbeat ??= setInterval(() => void this.#sendHeartbeat(), watchdogMs / 2).unref();
  }

  stopping(milliseconds: number, status: string): Promise<void> {
    return this.#notify('STOPPING=1', `EXTEND_TIMEOUT_USEC=${Math.round(milliseconds * 1000)}`, `STATUS=${status}`);
  }

  close(): void {
    clearInterval(this.#heartbeat);
    void this.#sender?.then(
      (sender) => sender.close(),
      () => undefined,
    );
    this.#sender = undefined;
  }

  /**
   * The timer proves that the event loop runs. The stat proves that libuv's workers run, which also do the shim's
   * writes. Until the stat returns, the watchdog gets no notification.
   */
  async #sendHeartbeat(): Promise<void> {
    if (this.#isCheckingWorkers) return;
    this.#isCheckingWorkers = true;
    await stat('/').catch(() => undefined);
    this.#isCheckingWorkers = false;
    await this.#notify('WATCHDOG=1');
  }

  async #notify(...assignments: readonly string[]): Promise<void> {
    try {
      const { receiver } = this.variables;
      const text = assignments.map((line) => line.replaceAll('\n', ' ')).join('\n');
      if (typeof receiver === 'number') {
        // At once (pipe(7), PIPE_BUF): no line of another process comes between.
        await promisify(write)(receiver, `${text}\n`);
        return;
      }
      this.#sender ??= openDatagramSender(receiver);
      await (await this.#sender).send(text);
    } catch (error) {
      if (this.#hasFailed) return;
      this.#hasFailed = true;
      this.options.counters.notifyFault();
      this.options.log.warn({ error: messageOf(error) }, 'notification of systemd failed');
    }
  }
}
