import { mkdirSync, readdirSync, realpathSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { errnoOf } from '../../core/errors/index.ts';

/** The folder of our socket. */
export interface Folder {
  readonly path: string;
  /** Whether it is there for our socket alone, so that its rights are ours to set. */
  readonly isOurs: boolean;
}

/**
 * Makes the folder of a socket, for us alone. A folder that was there is taken as ours when it holds nothing but our
 * sockets and belongs to us, as systemd's RuntimeDirectory= makes it; /run or the backend's own folder keep their rights.
 * @param socketNames this socket's name, and those of others of ours that may lie there, left by a shim that was killed
 */
export function prepareFolder(path: string, socketNames: readonly string[], backendFolder: string | undefined): Folder {
  mkdirSync(dirname(path), { recursive: true, mode: 0o755 });
  const isBackends = backendFolder !== undefined && realPath(path) === realPath(backendFolder);
  const isOurs = made(path) || (!isBackends && isForSocketsAlone(path, socketNames));
  return { path, isOurs };
}

function made(path: string): boolean {
  try {
    mkdirSync(path, { mode: 0o700 });
    return true;
  } catch (error) {
    if (errnoOf(error) === 'EEXIST' && statSync(path).isDirectory()) return false;
    throw error;
  }
}

function isForSocketsAlone(path: string, names: readonly string[]): boolean {
  const { uid, mode } = statSync(path);
  // A folder that others may write to is a meeting place (/tmp), be it empty.
  if (uid !== process.geteuid?.() || (mode & 0o022) !== 0) return false;
  return readdirSync(path).every((entry) => names.some((name) => entry === name || entry.startsWith(`.${name}.`)));
}

function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    // Not there yet: then it is not the folder that is.
    return path;
  }
}
