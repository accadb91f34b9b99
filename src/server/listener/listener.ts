import { randomBytes } from 'node:crypto';
import { linkSync, lstatSync, unlinkSync } from 'node:fs';
import { type Server, type Socket, createServer } from 'node:net';
import { basename, dirname, join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { errnoOf, messageOf } from '../../core/errors/index.ts';
import type { Log } from '../../observe/index.ts';
import { type Folder, prepareFolder } from './folder.ts';
import { type Rights, backendRights, forUsAlone, mirrored, reachOf, rightsOf, setRights } from './rights.ts';
import { listenerAt, occupantOf, removeStale } from './stale.ts';

/** Why it is not possible to listen: one sentence with the path and what to do. */
export class ListenError extends Error {
  override readonly name = 'ListenError';
}

export interface ListenOptions {
  /** Absolute path of the socket to listen on. */
  readonly path: string;
  readonly rights: SocketRights;
  /** Names of further sockets of ours that may lie in the same folder, left by a shim that was killed. */
  readonly neighbours?: readonly string[];
  /** Takes each accepted connection. */
  readonly onConnection: (socket: Socket) => void;
  readonly log: Log;
}

/** Who may connect. */
export type SocketRights =
  /** Who may connect to the backend, at this absolute path. */
  | { readonly like: string }
  /** Whom this mode lets, with us as the owner: 0o600. */
  | { readonly mode: number };

export interface Listener {
  /**
   * Gives socket and folder the backend's owner and mode as they are now. To be called whenever the backend has been
   * reached. Until its socket is there only we ourselves may connect; the listener looks for it by itself, too. Does nothing
   * for a socket with a mode of its own.
   */
  mirrorBackend(): void;
  /** Resolves, should it ever, when listening has failed. */
  readonly failure: Promise<Error>;
  /** Stops listening. Accepted connections stay. The path is unlinked if it still is our socket. */
  close(): Promise<void>;
}

/** sun_path of unix(7) is 108 bytes, with the closing zero. */
const LONGEST_PATH = 107;
const CLAIM_ATTEMPTS = 10;
const LOOK_FOR_BACKEND_MS = 1000;

/**
 * Listens on a unix socket that is never open to more than it shall be.
 *
 * The socket is bound to a name of its own beside the path, gets its rights there, and is then linked to the path. So it
 * appears there complete and listening; linking fails where something is in the way; and Node, which on closing unlinks
 * the name that a socket was bound with, never touches the path, whoever has it by then.
 *
 * Rejects with ListenError when another process listens there, when something else is in the way, or when folder or
 * socket cannot be made.
 */
export async function listen(options: ListenOptions): Promise<Listener> {
  const { path } = options;
  try {
    return await listenOrThrow(options);
  } catch (error) {
    if (error instanceof ListenError) throw error;
    throw new ListenError(`cannot listen on ${path}: ${explained(error, dirname(path))}`, { cause: error });
  }
}

async function listenOrThrow({ path, rights, neighbours = [], onConnection, log }: ListenOptions): Promise<Listener> {
  const bound = boundName(path);
  // Before anything is touched: the folder of a process that runs is not ours to change.
  await refuseIfTaken(path);
  const backendFolder = 'like' in rights ? dirname(rights.like) : undefined;
  const folder = prepareFolder(dirname(path), [basename(path), ...neighbours], backendFolder);
  const mirror = (target: string): boolean =>
    'like' in rights ? mirrorOrWarn(target, folder, rights.like, log) : giveMode(target, folder, rights.mode);
  const server = createServer(onConnection);
  await bind(server, bound);
  try {
    setRights(bound, forUsAlone(0o600));
    if (!mirror(bound) && folder.isOurs) setRights(folder.path, forUsAlone(0o700));
    await claim(bound, path);
  } catch (error) {
    server.close();
    throw error;
  }
  const { dev, ino } = lstatSync(bound);
  unlinkSync(bound);
  const failure = new Promise<Error>((resolve) => server.once('error', resolve));
  const isStillOurs = (): boolean => {
    const found = lstatSync(path, { throwIfNoEntry: false });
    return found?.dev === dev && found.ino === ino;
  };
  const mirrorBackend = (): void => {
    if (!isStillOurs() || mirror(path)) clearInterval(looking);
  };
  const looking = setInterval(mirrorBackend, LOOK_FOR_BACKEND_MS).unref();
  mirrorBackend();
  return {
    mirrorBackend,
    failure,
    async close() {
      clearInterval(looking);
      // As long as we listen, another one that starts finds us alive and leaves the path: so nothing changes between the
      // look and the unlink.
      if (isStillOurs()) unlinkSync(path);
      // Who connected until now is still accepted, and told that we go.
      await turn();
      server.close();
    },
  };
}

/** Beside the path, and not too long. The name starts as the path does, for people who read `ss -xl`. */
function boundName(path: string): string {
  const random = randomBytes(4).toString('hex');
  const fits = (name: string): boolean => Buffer.byteLength(name) <= LONGEST_PATH;
  if (!fits(path)) {
    throw new ListenError(
      `cannot listen on ${path}: it has ${Buffer.byteLength(path)} bytes, and a socket's path may have at most ` +
        `${LONGEST_PATH}; give a shorter one`,
    );
  }
  const name = join(dirname(path), `.${basename(path)}.${random}`);
  if (fits(name)) return name;
  const short = join(dirname(path), `.${random}`);
  if (fits(short)) return short;
  throw new ListenError(
    `cannot listen on ${path}: its folder has ${Buffer.byteLength(dirname(path))} bytes, and may have at most ` +
      `${LONGEST_PATH - random.length - 2}; give a shorter one`,
  );
}

/** Binds and listens. The umask is there for the one synchronous call that makes the file. */
function bind(server: Server, name: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.once('listening', () => {
      server.off('error', reject);
      resolve();
    });
    const before = process.umask(0o177);
    try {
      server.listen({ path: name });
    } finally {
      process.umask(before);
    }
  });
}

/** Links our socket to the path, past a stale one. */
async function claim(bound: string, path: string): Promise<void> {
  for (let attempt = 0; attempt < CLAIM_ATTEMPTS; attempt += 1) {
    try {
      linkSync(bound, path);
      return;
    } catch (error) {
      if (errnoOf(error) !== 'EEXIST') throw error;
    }
    if ((await refuseIfTaken(path)) === 'stale socket') await removeStale(path);
  }
  throw new ListenError(`cannot listen on ${path}: other processes keep taking it; is the shim started twice?`);
}

async function refuseIfTaken(path: string): Promise<'nothing' | 'stale socket'> {
  const occupant = await occupantOf(path);
  switch (occupant) {
    case 'nothing':
    case 'stale socket':
      return occupant;
    case 'live socket': {
      const ownNames = join(dirname(path), `.${basename(path)}.`);
      const who = listenerAt((name) => name === path || name.startsWith(ownNames)) ?? 'another process';
      throw new ListenError(`cannot listen on ${path}: ${who} already listens there; stop it, or give another path`);
    }
    case 'no socket':
      throw new ListenError(
        `cannot listen on ${path}: something that is no socket is there; remove it, or give another path`,
      );
  }
}

/** For a socket with a mode of its own; that of a folder of its own lets the same through. Nothing is left to look for. */
function giveMode(target: string, folder: Folder, mode: number): boolean {
  const through = ((mode & 0o060) === 0 ? 0 : 0o010) | ((mode & 0o006) === 0 ? 0 : 0o001);
  if (folder.isOurs) setRights(folder.path, forUsAlone(0o700 | through));
  setRights(target, forUsAlone(mode));
  return true;
}

/** Whether the backend's rights are known. Where they cannot be given, the narrower ones stay: that serves root. */
function mirrorOrWarn(target: string, folder: Folder, backendPath: string, log: Log): boolean {
  try {
    const backend = backendRights(backendPath);
    if (backend === undefined) return false;
    if (folder.isOurs) setRights(folder.path, backend.folder);
    const before = rightsOf(target);
    setRights(target, mirrored(backend, reachOf(folder.path, backend.socket.gid)));
    const after = rightsOf(target);
    if (!isSame(before, after)) log.info({ ...after, mode: octal(after.mode) }, "the socket has the backend's rights");
    return true;
  } catch (error) {
    log.warn({ socket: target, error: messageOf(error) }, "the socket cannot be given the backend's rights");
    return true;
  }
}

const isSame = (a: Rights, b: Rights): boolean => a.uid === b.uid && a.gid === b.gid && a.mode === b.mode;
const octal = (mode: number): string => `0${mode.toString(8)}`;

function explained(error: unknown, folder: string): string {
  const noRight = `no right to make a socket in ${folder}; run as root, or give a path in a folder of your own`;
  const noFolder = `${folder} is not a folder; give another path`;
  const known: Readonly<Record<string, string>> = {
    EACCES: noRight,
    EPERM: noRight,
    EROFS: `${folder} is on a read-only file system; give a path that can be written`,
    ENOTDIR: noFolder,
    EEXIST: noFolder,
  };
  return known[errnoOf(error) ?? ''] ?? messageOf(error);
}
