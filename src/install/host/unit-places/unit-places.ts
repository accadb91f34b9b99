import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf } from '../../../core/errors/index.ts';

/** The places of the shim that its units decide, regardless of its configuration. */
interface UnitPlaces {
  /** The sockets that systemd opens for the CRI: they take precedence over `listen`. */
  readonly sockets: readonly string[];
  /** The folders that the service may write to. */
  readonly writable: readonly string[];
}

/** What the shipped units have of these places. */
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
 * Reads the places from the shipped units and the drop-ins on this machine: an installation may not have written the units yet. Rejects if
 * a drop-in cannot be read.
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

/** Returns the values of a list in a unit: an empty one removes those before it. */
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
