import { chmodSync, chownSync, realpathSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { errnoOf } from '../../core/errors/index.ts';

/** Owner and permission bits of a file. */
export interface Rights {
  readonly uid: number;
  readonly gid: number;
  readonly mode: number;
}

/** Who may connect to the backend: the rights of its socket and of the folder that holds it. */
export interface BackendRights {
  readonly socket: Rights;
  readonly folder: Rights;
  /** Which classes may get to the folder of the socket, through all folders above it. */
  readonly reach: Reach;
}

/** Whether members of a socket's group, and everybody else, may search every folder on the way to it. */
export interface Reach {
  readonly group: boolean;
  readonly other: boolean;
}

/** Reads the backend's rights; undefined when there is no socket. */
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

/** Reads a file's rights. */
export function rightsOf(path: string): Rights {
  const { uid, gid, mode } = statSync(path);
  // With the sticky bit: a folder for all without it would be more than one with it.
  return { uid, gid, mode: mode & 0o1777 };
}

/** This mode, for the user that we are. */
export function forUsAlone(mode: number): Rights {
  return { uid: process.geteuid?.() ?? 0, gid: process.getegid?.() ?? 0, mode };
}

/** Reads who may get to a folder, from the root of the file system down to the folder itself. */
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
 * The rights of our socket: the backend's, less what a class could do here that could not get to the backend's socket
 * for its folders. Where the folders are alike these are the backend's own.
 */
export function mirrored(backend: BackendRights, here: Reach): Rights {
  let { mode } = backend.socket;
  if (here.group && !backend.reach.group) mode &= ~0o070;
  if (here.other && !backend.reach.other) mode &= ~0o007;
  return { ...backend.socket, mode };
}

/**
 * Gives a file these rights, without an instant in which it has more than before or after: what the new owner or group
 * is not meant to have is taken off before it changes hands. Where we may not give it away it stays ours, for us alone.
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
