import { execFile } from 'node:child_process';
import { readFile, rename, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { steadyNow, wallTime } from '../clock.ts';
import { messageOf } from '../errors.ts';
import { syncFile, syncFolder } from '../fsync.ts';
import type { BypassTimes, Log } from '../observe/interfaces.ts';

export interface BypassOptions {
  /** Returns the output of `systemctl show` for properties of the bypass. */
  readonly show?: (properties: readonly string[]) => Promise<string>;
  /** In a container: the file with the entry point's report, in systemctl's format; see {@link takeBypassFiles}. */
  readonly state?: string | undefined;
  readonly log: Log;
  /** Returns the uptime of this shim, in milliseconds. */
  readonly uptime?: () => number;
  /** Called once, when a bypass that served at the start of the shim has ended. */
  readonly onEnd: (times: { readonly start: number; readonly end: number }) => void;
}

const UNIT = 'cri-resize-shim-bypass.service';
const PROPERTIES = ['ActiveState', 'ActiveEnterTimestampMonotonic', 'InactiveEnterTimestampMonotonic'];
const POLL_MS = 1000;
const ANSWER_MS = 10_000;

/** Follows a bypass that may have served before this shim until all clients are back. systemd sends no event. */
export class BypassWatch {
  readonly #stop = new AbortController();
  #times: BypassTimes = { start: undefined, end: undefined };

  constructor(private readonly options: BypassOptions) {}

  get times(): BypassTimes {
    return this.#times;
  }

  /** Returns when the bypass no longer serves or the watch is stopped. Never rejects. */
  async run(): Promise<void> {
    const { log, onEnd, uptime = steadyNow } = this.options;
    try {
      let wasActive = false;
      while (!this.#stop.signal.aborted) {
        const { isActive, endAge, ...times } = await this.#read();
        this.#times = times;
        if (isActive && !wasActive) log.warn({ start: textOf(times.start) }, 'the bypass serves clients');
        if (!isActive) {
          const { start, end } = times;
          // Its clients may all have moved before the first look.
          const isAtStart = wasActive || endAge <= uptime();
          if (!isAtStart || start === undefined || end === undefined) return;
          log.warn({ start: textOf(start), end: textOf(end) }, 'the bypass has ended');
          onEnd({ start, end });
          return;
        }
        wasActive = true;
        await delay(POLL_MS, undefined, { signal: this.#stop.signal, ref: false });
      }
    } catch (error) {
      if (!this.#stop.signal.aborted) log.warn({ error: messageOf(error) }, 'state of the bypass unknown');
    }
  }

  close(): void {
    this.#stop.abort();
  }

  async #read(): Promise<BypassTimes & { readonly isActive: boolean; readonly endAge: number }> {
    const { show = showUnit, state } = this.options;
    const text = state === undefined ? await show(PROPERTIES) : await readFile(state, 'utf8');
    const values = new Map(text.split('\n').map((line) => line.split('=', 2) as [string, string]));
    const isActive = values.get('ActiveState') === 'active';
    // Read once: the two times of a bypass must have the distance that systemd reports.
    const now: Now = { wall: wallTime(), monotonic: Number(process.hrtime.bigint() / 1000n) };
    const startAge = ageOf(values.get('ActiveEnterTimestampMonotonic'), now);
    const endAge = isActive ? Infinity : ageOf(values.get('InactiveEnterTimestampMonotonic'), now);
    return { isActive, endAge, start: timeOf(startAge, now), end: timeOf(endAge, now) };
  }
}

async function showUnit(properties: readonly string[]): Promise<string> {
  const args = ['show', `--property=${properties.join(',')}`, '--', UNIT];
  return (await promisify(execFile)('systemctl', args, { timeout: ANSWER_MS })).stdout;
}

/** One instant by both clocks: in milliseconds since the epoch, and in microseconds of the monotonic clock. */
interface Now {
  readonly wall: number;
  readonly monotonic: number;
}

/**
 * Returns the milliseconds since a timestamp. It is in microseconds of the monotonic clock, which a change of the
 * system's time does not affect, or, after an @, in seconds since the epoch. 0 or an empty text is no time: Infinity.
 */
function ageOf(microseconds: string | undefined, now: Now): number {
  if (microseconds?.startsWith('@') === true) return now.wall - Number(microseconds.slice(1)) * 1000;
  if (microseconds === undefined || !/^[1-9]\d*$/.test(microseconds)) return Infinity;
  return (now.monotonic - Number(microseconds)) / 1000;
}

const timeOf = (age: number, now: Now): number | undefined => (age === Infinity ? undefined : now.wall - age);

const textOf = (time: number | undefined): string | undefined =>
  time === undefined ? undefined : new Date(time).toISOString();

/** Files through which the shim and its bypass exchange information. Undefined if their variable is not set. */
export interface BypassFiles {
  /** The shim writes containerd's socket to it, as an assignment of sh(1). */
  readonly target: string | undefined;
  /** The image's entry point writes properties of the bypass to this file, in the format of `systemctl show`. */
  readonly state: string | undefined;
}

/** Reads and removes the variables from the environment, because they are not for child processes. */
export function takeBypassFiles(env: NodeJS.ProcessEnv): BypassFiles {
  const { CRI_RESIZE_SHIM_BYPASS_FILE: target, CRI_RESIZE_SHIM_BYPASS_STATE: state } = env;
  for (const name of ['CRI_RESIZE_SHIM_BYPASS_FILE', 'CRI_RESIZE_SHIM_BYPASS_STATE']) Reflect.deleteProperty(env, name);
  return { target, state };
}

/**
 * Returns the socket of containerd that the shim has used last, from the file of {@link writeBypassTarget}. Undefined
 * if the shim has never started.
 */
export async function bypassTarget(file: string): Promise<string | undefined> {
  const text = await readFile(file, 'utf8').catch(() => '');
  const target = /^CRI_RESIZE_SHIM_BYPASS_TO="(.+)"\n/m.exec(text)?.[1]?.replaceAll(/\\(["\\`$])/g, '$1');
  return target?.startsWith('/') === true ? target : undefined;
}

/** Returns the {@link bypassTarget} of this service. Does not change the environment. */
export async function lastBypassTarget(env: NodeJS.ProcessEnv): Promise<string | undefined> {
  const { CRI_RESIZE_SHIM_BYPASS_FILE: file } = env;
  return file === undefined ? undefined : bypassTarget(file);
}

/**
 * Writes the socket to which the bypass leads if the shim fails after this start: the one that the shim uses. Never
 * rejects: a bypass to the socket of an earlier start is better than no shim.
 */
export async function writeBypassTarget(file: string | undefined, containerd: string, log: Log): Promise<void> {
  if (file === undefined) return;
  // The bypass reads the file with read of sh(1), which removes backslashes. In double quotes, systemd and a shell do
  // so too.
  const text = `CRI_RESIZE_SHIM_BYPASS_TO="${containerd.replaceAll(/["\\`$]/g, '\\$&')}"\n`;
  try {
    if ((await readFile(file, 'utf8').catch(() => undefined)) === text) return;
    await writeFile(`${file}.new`, text, { mode: 0o600 });
    await syncFile(`${file}.new`);
    await rename(`${file}.new`, file);
    await syncFolder(dirname(file));
  } catch (error) {
    log.warn({ file, error: messageOf(error) }, 'socket of containerd not written for the bypass');
  }
}
