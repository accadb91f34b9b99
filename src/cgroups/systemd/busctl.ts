/**
 * systemd's manager over D-Bus, by busctl(1). Not by a library that speaks D-Bus: busctl comes with each systemd and knows what
 * its version does, a process of its own costs the daemon neither memory nor a connection that may break, and a pod is
 * resized rarely enough for the 10 to 20 ms that one takes.
 */
import { Code, Reason, ShimError, errnoOf } from '../../core/errors/index.ts';
import type { UnitProperty } from '../systemd-units.ts';
import { dbusInterfaceOf, dbusObjectOf } from '../systemd-units.ts';

/** What a unit has. */
export interface UnitState {
  /** The unit's cgroup, from the root of the cgroup file system; empty when it has none: it is not there, or not active. */
  readonly cgroup: string;
  readonly properties: ReadonlyMap<string, bigint>;
}

export interface Systemd {
  /**
   * Reads properties of a unit. By then systemd has written to the kernel what it was asked for before: it takes a call only
   * once it has. Throws SYSTEMD_UNAVAILABLE.
   */
  read(unit: string, names: readonly string[]): Promise<UnitState>;
  /**
   * Sets properties of a unit, all or none, until the machine's next start (`runtime`). Of a unit that is not there systemd would
   * make settings for later: whoever calls this has read it before. Throws SYSTEMD_UNAVAILABLE, UNIT_UNAVAILABLE.
   */
  set(unit: string, properties: readonly UnitProperty[]): Promise<void>;
}

const SERVICE = 'org.freedesktop.systemd1';
/** How long systemd may take to answer, in milliseconds: it sets memory.max itself, and the kernel may reclaim before that returns. */
const ANSWER_MS = 10_000;

export class Busctl implements Systemd {
  /** `program`: busctl of the path, unless a test says otherwise. */
  constructor(readonly program = 'busctl') {}

  async read(unit: string, names: readonly string[]): Promise<UnitState> {
    const command = [
      '--json=short',
      'get-property',
      SERVICE,
      dbusObjectOf(unit),
      dbusInterfaceOf(unit),
      'ControlGroup',
    ];
    const lines = (await this.#run(unit, [...command, ...names])).split('\n');
    const [cgroup, ...values] = lines;
    return {
      cgroup: textOf(unit, cgroup),
      properties: new Map(names.map((name, at) => [name, numberOf(unit, name, values[at])])),
    };
  }

  async set(unit: string, properties: readonly UnitProperty[]): Promise<void> {
    const manager = [SERVICE, '/org/freedesktop/systemd1', `${SERVICE}.Manager`, 'SetUnitProperties', 'sba(sv)'];
    const values = properties.flatMap(({ name, value }) => [name, 't', String(value)]);
    await this.#run(unit, ['call', ...manager, '--', unit, 'true', String(properties.length), ...values]);
  }

  async #run(unit: string, command: readonly string[]): Promise<string> {
    const { ExecaError, execa } = await import('execa');
    try {
      const options = { timeout: ANSWER_MS, forceKillAfterDelay: 1000, env: { LC_ALL: 'C' }, stdin: 'ignore' } as const;
      return (await execa(this.program, ['--system', ...command], options)).stdout;
    } catch (error) {
      if (!(error instanceof ExecaError)) throw error;
      const said = String(error.stderr).trim();
      const why = errnoOf(error) === 'ENOENT' ? `${this.program} is not installed` : said || error.shortMessage;
      if (/\bUnit \S+ (not loaded|not found|does not exist)/.test(said)) throw unitUnavailable(unit, why, error);
      throw systemdUnavailable(unit, why, error);
    }
  }
}

/** systemd cannot be asked, or does not do what it is asked for. */
function systemdUnavailable(unit: string, why: string, cause?: unknown): ShimError {
  const message = `unit ${unit}: systemd cannot be asked over D-Bus: ${why}`;
  return new ShimError(Code.UNAVAILABLE, Reason.SYSTEMD_UNAVAILABLE, message, { file: unit }, { cause });
}

/** There is no such unit, or it is not the one that has the cgroup. */
export function unitUnavailable(unit: string, why: string, cause?: unknown): ShimError {
  const message = `unit ${unit}: ${why}`;
  return new ShimError(Code.FAILED_PRECONDITION, Reason.UNIT_UNAVAILABLE, message, { file: unit }, { cause });
}

/** One property as busctl prints it: `{"type":"t","data":5}`. Numbers may be too long for JSON.parse. */
function dataOf(type: string, line: string | undefined): string | undefined {
  const [, found, data] = /^\{"type":"(\w)","data":(.*)\}$/.exec(line ?? '') ?? [];
  return found === type ? data : undefined;
}

function textOf(unit: string, line: string | undefined): string {
  const data = dataOf('s', line);
  if (data === undefined) throw systemdUnavailable(unit, `its answer makes no sense: ${line ?? 'none'}`);
  return String(JSON.parse(data));
}

function numberOf(unit: string, name: string, line: string | undefined): bigint {
  const data = dataOf('t', line);
  if (data === undefined || !/^\d+$/.test(data))
    throw systemdUnavailable(unit, `its answer for ${name} makes no sense: ${line ?? 'none'}`);
  return BigInt(data);
}
