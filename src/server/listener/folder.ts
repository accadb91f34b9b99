import { mkdirSync, readdirSync, realpathSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { errnoOf } from '../../core/errors/index.ts';

/** The folder of the shim's socket. */
export interface Folder {
  readonly path: string;
  /** Whether it holds only the shim's sockets, so that the shim may set its permissions. */
  readonly isOurs: boolean;
}

/**
 * Creates the folder of a socket, with access for the shim's user only. An existing folder counts as the shim's if the
 * user owns it and it holds only the shim's sockets, as systemd's RuntimeDirectory= creates it. /run and the backend's
 * folder keep their permissions.
 * @param socketNames the name of this socket, and of other sockets that a killed shim may have left there
 */
export function prepareFolder(path: string, socketNames: readonly string[], backendFolder: string | undefined): Folder {
  mkdirSync(dirname(path), { recursive: true, mode: 0o755 });
  const isBackends = backendFolder !== undefined && realPath(path) === realPath(backendFolder);
  const isOurs = created(path) || (!isBackends && holdsOnlySockets(path, socketNames));
  return { path, isOurs };
}

function created(path: string): boolean {
  try {
    mkdirSync(path, { mode: 0o700 });
    return true;
  } catch (error) {
    if (errnoOf(error) === 'EEXIST' && statSync(path).isDirectory()) return false;
    throw error;
  }
}

function holdsOnlySockets(path: string, names: readonly string[]): boolean {
  const { uid, mode } = statSync(path);
  // A folder that others may write to (/tmp) is shared, even if it is empty.
  if (uid !== process.geteuid?.() || (mode & 0o022) !== 0) return false;
  return readdirSync(path).every((entry) => names.some((name) => entry === name || entry.startsWith(`.${name}.`)));
}

function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    // A path that does not exist is not the backend's folder.
    return path;
  }
}
