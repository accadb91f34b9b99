/** systemd on this node: its units, their paths and programs, and waiting for them. */
import { lstat, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { ExecaError, execa } from 'execa';
import { errnoOf, steadyNow } from '../../core/index.ts';

/** Maximum time of a start or stop, in milliseconds. */
const TIMEOUT_MS = 180_000;

/** Runs systemctl and returns its output. Rejects with its error output. */
export async function systemctl(args: readonly string[], timeoutMs = TIMEOUT_MS): Promise<string> {
  const env = { LC_ALL: 'C', SYSTEMD_COLORS: '0' };
  // Detached: Ctrl-C in a terminal must not end systemctl half way.
  const options = { timeout: timeoutMs, env, stdin: 'ignore', detached: true, cleanup: true } as const;
  try {
    return (await execa('systemctl', args, options)).stdout;
  } catch (error) {
    if (!(error instanceof ExecaError)) throw error;
    const output = String(error.stderr).trim().replaceAll('\n', ' ');
    throw new Error(output === '' ? error.shortMessage : `systemctl: ${output}`, { cause: error });
  }
}

/** Returns the values of unit properties; a property may have several. Rejects if systemd does not answer. */
export async function unitProperties(
  unit: string,
  names: readonly string[],
): Promise<(name: string) => readonly string[]> {
  const output = await systemctl(['show', `--property=${names.join(',')}`, '--', unit], 10_000);
  const pairs = output.split('\n').map((line) => line.split(/=(.*)/s));
  return (name) => pairs.filter(([key]) => key === name).map(([, value = '']) => value);
}

/** Maximum number of stop attempts: the fallback restarts a failing shim three times at once, then with pauses. */
const MOST_STOPS = 5;

/**
 * Stops units. systemd cancels the stop of a unit that is started meanwhile, and the bypass's fallback starts a failed
 * shim. A canceled stop is repeated.
 * @param afterEach runs after each stop, and before it is repeated
 */
export async function stopUnits(units: readonly string[], afterEach?: () => Promise<void>): Promise<void> {
  for (let stops = 1; ; stops += 1) {
    const canceled = await systemctl(['stop', '--', ...units]).then(() => undefined, canceledOf);
    await afterEach?.();
    if (canceled === undefined) return;
    if (stops === MOST_STOPS) throw canceled;
  }
}

/** Returns the error of a stop that systemd has canceled for a start. Throws any other. */
function canceledOf(error: unknown): Error {
  if (error instanceof Error && / canceled\.?$/m.test(error.message)) return error;
  throw error;
}

export interface Wait {
  readonly timeoutMs: number;
  /** Aborts on an interrupt. */
  readonly signal: AbortSignal;
}

const INTERVAL_MS = 250;

/**
 * Polls, because neither systemd units nor the calls of another process send notifications.
 * @param look returns what is still missing, or undefined. If it rejects, the wait ends.
 */
export async function waitUntil({ timeoutMs, signal }: Wait, look: () => Promise<string | undefined>): Promise<void> {
  for (const until = steadyNow() + timeoutMs; ; ) {
    const missing = await look();
    if (missing === undefined) return;
    signal.throwIfAborted();
    if (steadyNow() >= until) throw new Error(`timed out after ${timeoutMs / 1000} s: ${missing}`);
    await delay(INTERVAL_MS, undefined, { signal });
  }
}

/** The places of the shim that its units decide, regardless of its configuration. */
interface UnitPlaces {
  /** The sockets that systemd opens for the CRI: they take precedence over `listen`. */
  readonly sockets: readonly string[];
  /** The folders that the service may write to. */
  readonly writable: readonly string[];
}

/** The values of these places in the shipped units. */
const SOCKET = 'ListenStream=/run/cri-resize-shim/cri-resize-shim.sock';
const SERVICE = [
  'StateDirectory=cri-resize-shim cri-resize-shim-bypass',
  'ProtectSystem=strict',
  'ReadWritePaths=/run -/var/lib/kubelet',
];

/** Folders of drop-ins. A file in an earlier folder hides one of the same name in a later one (systemd.unit(5)). */
const folders = (unitFolder: string): readonly string[] => [
  ...[unitFolder, '/run/systemd/system'],
  ...['/usr/local/lib/systemd/system', '/usr/lib/systemd/system'],
];

/**
 * Reads the places from the shipped units and the drop-ins on this machine: an installation may not have written the
 * units yet. Rejects if a drop-in cannot be read.
 * @param unitFolder `/etc/systemd/system`
 */
export async function unitPlaces(unitFolder: string): Promise<UnitPlaces> {
  const socket = [SOCKET, ...(await dropInLines(unitFolder, 'cri-resize-shim.socket'))];
  const service = [...SERVICE, ...(await dropInLines(unitFolder, 'cri-resize-shim.service'))];
  const state = valuesOf(service, 'StateDirectory').map((name) => join('/var/lib', name.replace(/:.*$/, '')));
  const granted = ['ReadWritePaths', 'ReadWriteDirectories', 'BindPaths'].flatMap((key) => valuesOf(service, key));
  const isStrict = valuesOf(service, 'ProtectSystem').at(-1) === 'strict';
  return {
    sockets: valuesOf(socket, 'ListenStream'),
    writable: isStrict ? [...state, ...granted.map(pathOf)] : ['/'],
  };
}

/** `-/path`, `+/path`, or `/source:/path:options` of BindPaths=. */
function pathOf(text: string): string {
  const [source = '', path = source] = text.replace(/^[-+]+/, '').split(':');
  return path;
}

/** Returns the values of a list setting in a unit. An empty value removes the values before it. */
function valuesOf(lines: readonly string[], key: string): readonly string[] {
  let values: readonly string[] = [];
  for (const line of lines) {
    const [name = '', value = ''] = line.split(/=(.*)/s);
    if (name.trim() !== key) continue;
    const words = value.trim().match(/"[^"]*"|'[^']*'|\S+/g) ?? [];
    values = words.length === 0 ? [] : [...values, ...words.map((word) => word.replaceAll(/^["']|["']$/g, ''))];
  }
  return values;
}

async function dropInLines(unitFolder: string, unit: string): Promise<readonly string[]> {
  const files = new Map<string, string>();
  for (const folder of folders(unitFolder).map((parent) => join(parent, `${unit}.d`)))
    for (const name of await namesIn(folder)) if (!files.has(name)) files.set(name, join(folder, name));
  const lines: string[] = [];
  for (const name of [...files.keys()].toSorted()) {
    const text = await readFile(files.get(name) ?? '', 'utf8');
    lines.push(...text.replaceAll('\\\n', ' ').split('\n'));
  }
  return lines;
}

async function namesIn(folder: string): Promise<readonly string[]> {
  try {
    return (await readdir(folder)).filter((name) => name.endsWith('.conf'));
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [];
    throw error;
  }
}

/**
 * Returns the service's flags: CRI_RESIZE_SHIM_FLAGS of its environment file, split at blanks as systemd does. Returns
 * no flags if there is no such file. Rejects if it cannot be read.
 */
export async function serviceFlags(flagsFile: string): Promise<readonly string[]> {
  try {
    return flagsIn(await readFile(flagsFile, 'utf8'));
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [];
    throw error;
  }
}

/** Reads the last CRI_RESIZE_SHIM_FLAGS of an environment file (systemd.exec(5), EnvironmentFile=). */
export function flagsIn(text: string): readonly string[] {
  const values = [...text.replaceAll('\\\n', ' ').matchAll(/^[ \t]*CRI_RESIZE_SHIM_FLAGS[ \t]*=[ \t]*(.*?)[ \t]*$/gm)];
  const value = values.at(-1)?.[1] ?? '';
  const [, , inside = value] = /^(["'])(.*)\1$/.exec(value) ?? [];
  return inside.split(/\s+/).filter((word) => word !== '');
}

/**
 * Returns an environment file with further flags of the service, in a line at its end, which takes precedence over
 * earlier ones. @param text undefined: there is no file yet
 */
export function withServiceFlags(text: string | undefined, more: readonly string[]): string {
  if (text !== undefined && more.length === 0) return text;
  const line = `CRI_RESIZE_SHIM_FLAGS="${[...flagsIn(text ?? ''), ...more].join(' ')}"\n`;
  // An empty line ends a line that is continued by a backslash.
  return text === undefined ? line : `${text.replace(/\n?$/, '\n')}${/\\\n?$/.test(text) ? '\n' : ''}${line}`;
}

const hasWildcard = (text: string): boolean => /[*?[]/.test(text);

/**
 * Returns the paths that match a pattern, as glob(3) does with the default flags, which systemd uses: `*`, `?` and
 * `[...]` match within a name, but a leading dot only matches a literal dot. Braces have no special meaning. Sorted by
 * bytes. A path without wildcards is returned itself, whether it exists or not.
 * @param pattern an absolute path
 */
export async function expandGlob(pattern: string): Promise<readonly string[]> {
  if (!hasWildcard(pattern)) return [pattern];
  let found: readonly string[] = ['/'];
  for (const part of pattern.split('/').filter((name) => name !== ''))
    found = (await Promise.all(found.map((folder) => stepInto(folder, part)))).flat();
  return found.toSorted((one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other)));
}

async function stepInto(folder: string, part: string): Promise<readonly string[]> {
  if (!hasWildcard(part)) {
    const path = join(folder, part);
    return lstat(path).then(
      () => [path],
      () => [],
    );
  }
  const form = formOf(part);
  const names = await readdir(folder).catch(() => []);
  return names.filter((name) => form.test(name)).map((name) => join(folder, name));
}

function formOf(part: string): RegExp {
  const form = part.replaceAll(/\[(!?)(\]?[^\]]*)\]|\\?./gs, (text, not?: string, members?: string) => {
    if (members !== undefined) return `[${not === '!' ? '^' : ''}${members.replaceAll(/[\\\]^]/g, String.raw`\$&`)}]`;
    if (text === '*') return '.*';
    if (text === '?') return '.';
    return text.replace(/^\\(?=.)/s, '').replaceAll(/[$()*+.?[\\\]^{|}]/g, String.raw`\$&`);
  });
  return new RegExp(`^${part.startsWith('.') ? '' : String.raw`(?!\.)`}${form}$`, 's');
}
