import {
  closeSync,
  constants,
  lstatSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  unlinkSync,
} from 'node:fs';
import { createConnection } from 'node:net';
import { basename, dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { errnoOf, SO_ACCEPTCON, unixSockets } from '../../core/index.ts';

/** The kinds of files at a path where a socket is to be created. */
export type Occupant = 'nothing' | 'stale socket' | 'live socket' | 'no socket';

/**
 * Finds out what exists at a path. Connects to a socket to see whether a process listens. Rejects if neither is
 * possible.
 */
export async function occupantOf(path: string): Promise<Occupant> {
  try {
    if (!lstatSync(path).isSocket()) return 'no socket';
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return 'nothing';
    throw error;
  }
  return probe(path);
}

function probe(path: string): Promise<Occupant> {
  return new Promise((resolve, reject) => {
    const socket = createConnection(path);
    socket.once('connect', () => {
      socket.destroy();
      resolve('live socket');
    });
    socket.once('error', (error) => {
      const occupant = occupantByErrno.get(errnoOf(error) ?? '');
      if (occupant === undefined) reject(error);
      else resolve(occupant);
    });
  });
}

const occupantByErrno: ReadonlyMap<string, Occupant> = new Map([
  ['ECONNREFUSED', 'stale socket'],
  ['ENOENT', 'nothing'],
  // The queue of the listening process is full.
  ['EAGAIN', 'live socket'],
  // A socket of another type (datagram), in use by another program.
  ['EPROTOTYPE', 'live socket'],
]);

const LOCK_EX_NB = 2 | 4;
/** Maximum number of attempts. The lock is held only for one probe. */
const LOCK_ATTEMPTS = 100;
const LOCK_PAUSE_MS = 50;

/**
 * Removes a socket that no process listens on. Processes that start at the same time check again one by one under a
 * lock, so that none removes a socket that another has just created. The kernel releases the lock when its holder
 * exits; the lock file stays.
 */
export async function removeStale(path: string): Promise<void> {
  const { default: koffi } = await import('koffi');
  const flock = koffi.load(null).func('int flock(int fd, int operation)') as (fd: number, operation: number) => number;
  const lockFile = join(dirname(path), `.${basename(path)}.lock`);
  const lock = openSync(lockFile, constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW, 0o600);
  try {
    for (let attempt = 0; flock(lock, LOCK_EX_NB) !== 0; attempt += 1) {
      if (attempt === LOCK_ATTEMPTS)
        throw new Error(`another process holds the lock ${lockFile}; check whether it hangs`);
      await delay(LOCK_PAUSE_MS);
    }
    if ((await occupantOf(path)) === 'stale socket') unlinkSync(path);
  } finally {
    closeSync(lock);
  }
}

/**
 * Returns the process that listens on a socket, as `pid 123 (containerd)`, or undefined if it cannot be seen from here.
 * @param bound returns whether a name is the socket's: the kernel lists sockets by the name they were bound with
 */
export function listenerAt(bound: (name: string) => boolean): string | undefined {
  try {
    const inodes = unixSockets(readFileSync('/proc/net/unix', 'utf8'))
      .filter(({ flags, path }) => flags === SO_ACCEPTCON && path !== '' && bound(path))
      .map(({ inode }) => `socket:[${inode}]`);
    const pid = readdirSync('/proc').find((entry) => /^\d+$/.test(entry) && holdsAny(entry, inodes));
    return pid === undefined ? undefined : `pid ${pid} (${programOf(pid)})`;
  } catch {
    // The process only adds detail to an error message. Without /proc the message goes without it.
    return undefined;
  }
}

/** Returns the name of the executable: the process name may be unspecific (`MainThread` with Node 24 and later). */
const programOf = (pid: string): string => basename(readlinkSync(`/proc/${pid}/exe`).replace(/ \(deleted\)$/, ''));

function holdsAny(pid: string, inodes: readonly string[]): boolean {
  try {
    return readdirSync(`/proc/${pid}/fd`).some((fd) => inodes.includes(readlinkSync(`/proc/${pid}/fd/${fd}`)));
  } catch {
    // The process has ended, or its descriptors may not be read.
    return false;
  }
}
