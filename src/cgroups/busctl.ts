/**
 * Calls systemd over D-Bus through busctl(1) instead of a D-Bus library: busctl comes with every systemd and matches
 * its version. A separate process costs the shim neither memory nor a connection that may break, and resizes are rare
 * enough for the 10 to 20 ms that it takes.
 */
import { Code, errnoOf, Reason, ShimError } from '../core/index.ts';
import { dbusInterfaceOf, dbusObjectOf, isSetProperty, type UnitProperty } from './systemd-units.ts';

/** The state of a unit. */
export interface UnitState {
  /** The unit's cgroup, from the root of the cgroup file system. Empty if the unit does not exist or is not active. */
  readonly cgroup: string;
  readonly properties: ReadonlyMap<string, bigint>;
}

export interface Systemd {
  /**
   * Reads properties of a unit. systemd handles calls in order, so all earlier changes have been written to the kernel.
   * Throws SYSTEMD_UNAVAILABLE, and an {@link isUnknownProperty} error if this systemd lacks one of the properties.
   */
  read(unit: string, names: readonly string[]): Promise<UnitState>;
  /**
   * Sets all or none of the properties of a unit until the next reboot (`runtime`). For a unit that does not exist,
   * systemd would store them for later, so callers must read the unit first. Throws SYSTEMD_UNAVAILABLE and
   * UNIT_UNAVAILABLE.
   */
  set(unit: string, properties: readonly UnitProperty[]): Promise<void>;
}

const SERVICE = 'org.freedesktop.systemd1';
/** Timeout of a call in milliseconds. systemd itself writes memory.max, which may reclaim before it returns. */
const ANSWER_MS = 10_000;

export class Busctl implements Systemd {
  /** @param program another executable for tests */
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
      properties: new Map(names.map((name, at) => [name, valueOf(unit, name, values[at])])),
    };
  }

  async set(unit: string, properties: readonly UnitProperty[]): Promise<void> {
    const manager = [SERVICE, '/org/freedesktop/systemd1', `${SERVICE}.Manager`, 'SetUnitProperties', 'sba(sv)'];
    const values = properties.flatMap(({ name, value }) => [
      name,
      ...(isSetProperty(name) ? ['ay', ...bytesOf(value)] : ['t', String(value)]),
    ]);
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
      if (/\bUnknown (interface|property)\b/.test(said)) throw new UnknownProperty(unit, why, error);
      throw systemdUnavailable(unit, why, error);
    }
  }
}

class UnknownProperty extends ShimError {
  constructor(unit: string, why: string, cause: unknown) {
    const { code, reason, message, context } = systemdUnavailable(unit, why);
    super(code, reason, message, context, { cause });
  }
}

/** Whether an error means that this systemd release does not support a property. */
export const isUnknownProperty = (error: unknown): boolean => error instanceof UnknownProperty;

/** Returns the error for a D-Bus call that failed or that systemd rejected. */
function systemdUnavailable(unit: string, why: string, cause?: unknown): ShimError {
  const message = `unit ${unit}: D-Bus call to systemd failed: ${why}`;
  return new ShimError(Code.UNAVAILABLE, Reason.SYSTEMD_UNAVAILABLE, message, { file: unit }, { cause });
}

/** Returns the error for a unit that does not exist or has another cgroup. */
export function unitUnavailable(unit: string, why: string, cause?: unknown): ShimError {
  const message = `unit ${unit}: ${why}`;
  return new ShimError(Code.FAILED_PRECONDITION, Reason.UNIT_UNAVAILABLE, message, { file: unit }, { cause });
}

/** Parses a property as printed by busctl: `{"type":"t","data":5}`. JSON.parse would lose digits of large numbers. */
function dataOf(type: string, line: string | undefined): string | undefined {
  const [, found, data] = /^\{"type":"(\w+)","data":(.*)\}$/.exec(line ?? '') ?? [];
  return found === type ? data : undefined;
}

function textOf(unit: string, line: string | undefined): string {
  const data = dataOf('s', line);
  if (data === undefined) throw systemdUnavailable(unit, `unexpected response: ${line ?? 'none'}`);
  return String(JSON.parse(data));
}

function valueOf(unit: string, name: string, line: string | undefined): bigint {
  const value = isSetProperty(name) ? bitsIn(dataOf('ay', line)) : numberIn(dataOf('t', line));
  if (value === undefined) throw systemdUnavailable(unit, `unexpected response for ${name}: ${line ?? 'none'}`);
  return value;
}

const numberIn = (data: string | undefined): bigint | undefined =>
  /^\d+$/.test(data ?? '') ? BigInt(data ?? '') : undefined;

/** Parses a list of bytes, least significant byte first: `[255,3]`. */
function bitsIn(data: string | undefined): bigint | undefined {
  const [whole, list] = /^\[(\d{1,3}(?:,\d{1,3})*)?\]$/.exec(data ?? '') ?? [];
  if (whole === undefined) return undefined;
  const bytes = list?.split(',') ?? [];
  return bytes.reduceRight((bits, byte) => (bits << 8n) | BigInt(byte), 0n);
}

/** Returns the busctl arguments for a list of bytes, least significant byte first: their number, then each byte. */
function bytesOf(bits: bigint): string[] {
  const bytes: string[] = [];
  for (let rest = bits; rest > 0n; rest >>= 8n) bytes.push(String(rest & 0xffn));
  return [String(bytes.length), ...bytes];
}
