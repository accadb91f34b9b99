import { linkSync, lstatSync, unlinkSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { basename, dirname, join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { errnoOf, type Log, messageOf } from '../../core/index.ts';
import {
  backendRights,
  type Folder,
  mirrored,
  ownedByShim,
  prepareFolder,
  type Rights,
  reachOf,
  rightsOf,
  setRights,
} from './rights.ts';
import { listenerAt, occupantOf, removeStale } from './stale.ts';

/** Why listening is not possible: one sentence with the path and what to do. */
class ListenError extends Error {
  override readonly name = 'ListenError';
}

export interface ListenOptions {
  /** Absolute path of the socket to listen on. */
  readonly path: string;
  readonly rights: SocketRights;
  /** Names of the shim's other sockets that may exist in the same folder, left by a shim that was killed. */
  readonly neighbours?: readonly string[];
  /** Receives each accepted connection. */
  readonly onConnection: (socket: Socket) => void;
  readonly log: Log;
}

/** Determines who may connect. */
export type SocketRights =
  /** Those who may connect to the backend's socket at this absolute path. */
  | { readonly like: string }
  /** Those whom this mode permits, with the shim's user as the owner. For example 0o600. */
  | { readonly mode: number };

export interface Listener {
  /**
   * Copies the current owner and mode of the backend's socket to the shim's socket and folder. To be called whenever a
   * connection to the backend is established; the listener also polls until the backend's socket exists. Until then
   * only the shim's user may connect. Does nothing for a socket with a mode of its own.
   */
  mirrorBackend(): void;
  /** Resolves when listening fails. */
  readonly failure: Promise<Error>;
  /** Stops listening. Accepted connections stay open. Unlinks the path if it still is the shim's socket. */
  close(): Promise<void>;
}

/** sun_path of unix(7) has 108 bytes, including the terminating zero. */
const LONGEST_PATH = 107;
const CLAIM_ATTEMPTS = 10;
const POLL_BACKEND_MS = 1000;

/**
 * Listens on a unix socket whose permissions are never wider than configured.
 *
 * The socket is bound to a temporary name in the same folder, gets its permissions there, and is then hard-linked to
 * the path:
 * - It appears at the path complete and listening.
 * - Linking fails if the path exists.
 * - When a server closes, Node unlinks the name that it was bound with. That is never the path, which may belong to
 *   another process by then.
 *
 * Rejects with ListenError if another process listens there, if the path is occupied otherwise, or if the folder or the
 * socket cannot be created.
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
  // First of all: the folder of a running process must not be changed.
  await refuseIfTaken(path);
  const backendFolder = 'like' in rights ? dirname(rights.like) : undefined;
  const folder = prepareFolder(dirname(path), [basename(path), ...neighbours], backendFolder);
  const mirror = (target: string): boolean =>
    'like' in rights ? mirrorOrWarn(target, folder, rights.like, log) : giveMode(target, folder, rights.mode);
  let accepted = 0;
  const server = createServer((socket) => {
    accepted += 1;
    onConnection(socket);
  });
  await bind(server, bound);
  try {
    setRights(bound, ownedByShim(0o600));
    if (!mirror(bound) && folder.isOurs) setRights(folder.path, ownedByShim(0o700));
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
    if (!isStillOurs() || mirror(path)) clearInterval(polling);
  };
  const polling = setInterval(mirrorBackend, POLL_BACKEND_MS).unref();
  mirrorBackend();
  return {
    mirrorBackend,
    failure,
    async close() {
      clearInterval(polling);
      // Nothing changes between the check and the unlink: while this process listens, another starting shim finds a
      // live socket and does not change the path.
      if (isStillOurs()) unlinkSync(path);
      // Clients that have connected by now are still accepted and shut down gracefully.
      await acceptQueued(() => accepted);
      server.close();
    },
  };
}

/**
 * Resolves when the queue of a socket is empty to which no further clients can connect. A turn of the event loop
 * accepts one client (libuv's uv__server_io). The first call of setImmediate can end in the turn that has begun,
 * without accepting.
 */
async function acceptQueued(count: () => number): Promise<void> {
  await turn();
  for (let before = -1; before !== count(); ) {
    before = count();
    await turn();
  }
}

/**
 * Returns a temporary name in the path's folder. It contains the socket's name if that fits, for readers of `ss -xl`.
 */
function boundName(path: string): string {
  // Has to be unique, not secret: a file that exists is not replaced. Loading node:crypto for it would take 4 MB of
  // memory.
  const random = Math.floor(Math.random() * 2 ** 32)
    .toString(16)
    .padStart(8, '0');
  const fits = (name: string): boolean => Buffer.byteLength(name) <= LONGEST_PATH;
  if (!fits(path)) {
    throw new ListenError(
      `cannot listen on ${path}: the path has ${Buffer.byteLength(path)} bytes, ` +
        `a socket's path at most ${LONGEST_PATH}; use a shorter path`,
    );
  }
  const name = join(dirname(path), `.${basename(path)}.${random}`);
  if (fits(name)) return name;
  const short = join(dirname(path), `.${random}`);
  if (fits(short)) return short;
  throw new ListenError(
    `cannot listen on ${path}: the folder's path has ${Buffer.byteLength(dirname(path))} bytes, at most ` +
      `${LONGEST_PATH - random.length - 2} are possible; use a folder with a shorter path`,
  );
}

/** Binds and listens. The umask applies to the one synchronous call that creates the file. */
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

/** Links the socket to the path. Removes a stale socket that is there. */
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
  throw new ListenError(
    `cannot listen on ${path}: other processes keep creating sockets there; check whether the shim runs twice`,
  );
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
      throw new ListenError(`cannot listen on ${path}: ${who} already listens there; stop it or use another path`);
    }
    case 'no socket':
      throw new ListenError(
        `cannot listen on ${path}: the path exists and is not a socket; remove it or use another path`,
      );
  }
}

/**
 * Sets a configured mode. Opens the shim's own folder to the same permission classes. Returns true: no polling is
 * needed.
 */
function giveMode(target: string, folder: Folder, mode: number): boolean {
  const through = ((mode & 0o060) === 0 ? 0 : 0o010) | ((mode & 0o006) === 0 ? 0 : 0o001);
  if (folder.isOurs) setRights(folder.path, ownedByShim(0o700 | through));
  setRights(target, ownedByShim(mode));
  return true;
}

/**
 * Copies the backend's permissions. Returns false if its socket does not exist yet. If copying fails, the narrower
 * permissions stay, which are enough for clients that run as root.
 */
function mirrorOrWarn(target: string, folder: Folder, backendPath: string, log: Log): boolean {
  try {
    const backend = backendRights(backendPath);
    if (backend === undefined) return false;
    if (folder.isOurs) setRights(folder.path, backend.folder);
    const before = rightsOf(target);
    setRights(target, mirrored(backend, reachOf(folder.path, backend.socket.gid)));
    const after = rightsOf(target);
    if (!isSame(before, after))
      log.info({ ...after, mode: octal(after.mode) }, 'socket permissions copied from backend');
    return true;
  } catch (error) {
    log.warn({ socket: target, error: messageOf(error) }, 'socket permissions not copied from backend');
    return true;
  }
}

const isSame = (a: Rights, b: Rights): boolean => a.uid === b.uid && a.gid === b.gid && a.mode === b.mode;
const octal = (mode: number): string => `0${mode.toString(8)}`;

function explained(error: unknown, folder: string): string {
  const noRight = `no permission to create a socket in ${folder}; run as root or use a path in a folder of your own`;
  const noFolder = `${folder} is not a folder; use another path`;
  const known: Readonly<Record<string, string>> = {
    EACCES: noRight,
    EPERM: noRight,
    EROFS: `${folder} is on a read-only file system; use a path on a writable one`,
    ENOTDIR: noFolder,
    EEXIST: noFolder,
  };
  return known[errnoOf(error) ?? ''] ?? messageOf(error);
}

export interface InheritedListenOptions {
  /** The file descriptor of a listening unix socket that this process inherited. */
  readonly descriptor: number;
  /** The socket's path, for errors. */
  readonly path: string;
  /** Receives each accepted connection. */
  readonly onConnection: (socket: Socket) => void;
}

/**
 * Accepts connections on a socket that another process (systemd) created and keeps open. Its path, its permissions and
 * its folder are not changed. Clients that connect after the shim has stopped wait in its queue for the next shim.
 * Rejects with ListenError.
 */
export async function listenOnInherited({ descriptor, path, onConnection }: InheritedListenOptions): Promise<Listener> {
  const server = createServer(onConnection);
  try {
    await accepting(server, descriptor);
  } catch (error) {
    throw new ListenError(`cannot listen on inherited socket ${path}: ${messageOf(error)}`, { cause: error });
  }
  return {
    mirrorBackend: () => undefined,
    failure: new Promise((resolve) => server.once('error', resolve)),
    async close() {
      // Clients not accepted by now belong to the next shim. The turn lets accepted connections start their graceful
      // shutdown.
      server.close();
      await turn();
    },
  };
}

function accepting(server: Server, descriptor: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ fd: descriptor }, () => {
      server.off('error', reject);
      resolve();
    });
  });
}
