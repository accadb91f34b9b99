import { constants, type Dirent } from 'node:fs';
import { lstat, open, readdir } from 'node:fs/promises';
import { errnoOf, MiB, messageOf } from '../../core/index.ts';

/** Maximum size of a file that kubelet reads. A larger file is not read: the shim has little memory. */
export const LONGEST_FILE = MiB;
/** Maximum number of files and folders below `--config-dir`. */
export const MOST_ENTRIES = 4096;

/** Why a file cannot be read. */
export interface Problem {
  readonly problem: string;
  /** Whether we lack the permission. kubelet and systemd run as root, so they may be able to read the file. */
  readonly isDenied?: true;
}

/** Describes why a file cannot be read. @param file its name for users, which is not always where it was read */
export function problemOf(error: unknown, file: string): Problem {
  const code = errnoOf(error);
  if (code === 'ENOENT') return { problem: `${file} does not exist` };
  if (code === 'EACCES' || code === 'EPERM')
    return { problem: `${file} cannot be read: permission denied`, isDenied: true };
  return { problem: messageOf(error) };
}

/** Reads a small regular file as text. Rejects like {@link readBytes}. @param path where @param file for errors */
export const readSmall = async (path: string, file: string): Promise<string> =>
  (await readBytes(path, file)).toString('utf8');

/** `/dev/null`: major 1, minor 3 (Documentation/admin-guide/devices.txt of Linux). A link to it makes a file empty. */
const NULL_DEVICE = 0x103;

/**
 * Reads a small regular file, or nothing from `/dev/null`. Rejects for anything else: a FIFO would never end.
 * @param path where to read it @param file for errors
 */
export async function readBytes(path: string, file: string): Promise<Buffer> {
  const opened = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const stat = await opened.stat();
    if (stat.isCharacterDevice() && stat.rdev === NULL_DEVICE) return Buffer.alloc(0);
    if (!stat.isFile()) throw new Error(`${file} is not a regular file`);
    if (stat.size > LONGEST_FILE) throw new Error(`${file} is longer than ${LONGEST_FILE} bytes`);
    return await opened.readFile();
  } finally {
    await opened.close();
  }
}

/**
 * Lists the drop-ins of `--config-dir` in the order in which kubelet merges them, relative to the folder. kubelet walks
 * the folder with filepath.WalkDir: entries in the order of the bytes of their names, subfolders in their place,
 * symbolic links not followed to folders. It uses every entry that is not a folder and has a name ending in `.conf`
 * (mergeKubeletConfigurations in cmd/kubelet/app/server.go). A folder that is itself a symbolic link is walked only
 * with a slash at its end: WalkDir begins with Lstat. Returns undefined for a folder that is not walked.
 * @param folder where to read it
 */
export async function dropInsIn(folder: string): Promise<readonly string[] | undefined> {
  if (!(await lstat(folder)).isDirectory()) return undefined;
  const found: string[] = [];
  let seen = 0;
  const walk = async (inside: string): Promise<void> => {
    for (const entry of await entriesOf(`${folder}/${inside}`)) {
      seen += 1;
      if (seen > MOST_ENTRIES) throw new Error(`${folder} has more than ${MOST_ENTRIES} entries`);
      const path = `${inside}${entry.name}`;
      if (entry.isDirectory()) await walk(`${path}/`);
      else if (isDropInName(entry.name)) found.push(path);
    }
  };
  await walk('');
  return found;
}

async function entriesOf(folder: string): Promise<readonly Dirent[]> {
  return (await readdir(folder, { withFileTypes: true })).toSorted((one, other) => compareNames(one.name, other.name));
}

/** Whether filepath.Ext in Go returns `.conf`. A file named `.conf` is a drop-in too. */
const isDropInName = (name: string): boolean => name.endsWith('.conf');

const compareNames = (one: string, other: string): number => Buffer.compare(Buffer.from(one), Buffer.from(other));

/** Compares two drop-ins, relative to their folder, in kubelet's merge order. The later one is greater. */
export function compareDropIns(one: string, other: string): number {
  const [names, others] = [one.split('/'), other.split('/')];
  for (const [index, name] of names.entries()) {
    const order = compareNames(name, others[index] ?? '');
    if (order !== 0) return order;
  }
  return names.length - others.length;
}
