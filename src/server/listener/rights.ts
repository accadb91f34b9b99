import { chmodSync, chownSync, mkdirSync, readdirSync, realpathSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { errnoOf } from '../../core/index.ts';

/** Owner and permission bits of a file. */
export interface Rights {
  readonly uid: number;
  readonly gid: number;
  readonly mode: number;
}

/** Who may connect to the backend: the permissions of its socket and of the socket's folder. */
export interface BackendRights {
  readonly socket: Rights;
  readonly folder: Rights;
  /** Which permission classes can reach the socket's folder through all folders above it. */
  readonly reach: Reach;
}

/** Whether the socket's group, and all other users, have search permission for every folder on the path to it. */
export interface Reach {
  readonly group: boolean;
  readonly other: boolean;
}

/** Reads the permissions of the backend's socket. Returns undefined if there is no socket. */
export function backendRights(socketPath: string): BackendRights | undefined {
  try {
    const path = realpathSync(socketPath);
    const stats = statSync(path);
    if (!stats.isSocket()) return undefined;
    const socket = rightsOf(path);
    return { socket, folder: rightsOf(dirname(path)), reach: reachOf(dirname(path), socket.gid) };
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

/** Reads a file's owner and permissions. */
export function rightsOf(path: string): Rights {
  const { uid, gid, mode } = statSync(path);
  // Includes the sticky bit: without it, a folder with mode 1777 would become more permissive.
  return { uid, gid, mode: mode & 0o1777 };
}

/** Returns this mode with the shim's user and group as owner. */
export function ownedByShim(mode: number): Rights {
  return { uid: process.geteuid?.() ?? 0, gid: process.getegid?.() ?? 0, mode };
}

/** Reads who can reach a folder, from the root of the file system down to the folder itself. */
export function reachOf(folder: string, gid: number): Reach {
  let [group, other] = [true, true];
  for (let path = realpathSync(folder); ; path = dirname(path)) {
    const rights = rightsOf(path);
    other &&= (rights.mode & 0o001) !== 0;
    group &&= (rights.mode & (rights.gid === gid ? 0o010 : 0o001)) !== 0;
    if (path === dirname(path)) return { group, other };
  }
}

/**
 * Returns the permissions for the shim's socket: the backend's, without those of classes that can reach the shim's
 * socket but, because of its folders, not the backend's.
 */
export function mirrored(backend: BackendRights, own: Reach): Rights {
  let { mode } = backend.socket;
  if (own.group && !backend.reach.group) mode &= ~0o070;
  if (own.other && !backend.reach.other) mode &= ~0o007;
  return { ...backend.socket, mode };
}

/**
 * Sets a file's owner and permissions. At no instant are they wider than before or after: permissions that the new
 * owner or group should not have are removed before the owner changes. If the shim may not change the owner (EPERM),
 * the file keeps its owner and is accessible to that owner only.
 */
export function setRights(path: string, wanted: Rights): void {
  const current = rightsOf(path);
  let { mode } = wanted;
  if (current.uid !== wanted.uid || current.gid !== wanted.gid) {
    chmodSync(path, current.mode & mode & 0o700);
    try {
      chownSync(path, wanted.uid, wanted.gid);
    } catch (error) {
      if (errnoOf(error) !== 'EPERM') throw error;
      mode &= 0o700;
    }
  }
  if (rightsOf(path).mode !== mode) chmodSync(path, mode);
}

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
