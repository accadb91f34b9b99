import {
  closeSync,
  constants,
  lstatSync,
  openSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  unlinkSync,
} from 'node:fs';
import { createConnection } from 'node:net';
import { basename, dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { errnoOf } from '../../core/errors/index.ts';

/** What stands in the way at a path where a socket shall be. */
export type Occupant = 'nothing' | 'stale socket' | 'live socket' | 'no socket';

/** Looks what is at a path; asks a socket whether somebody listens. Rejects when that cannot be found out. */
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
      const occupant = answers.get(errnoOf(error) ?? '');
      if (occupant === undefined) reject(error);
      else resolve(occupant);
    });
  });
}

const answers: ReadonlyMap<string, Occupant> = new Map([
  ['ECONNREFUSED', 'stale socket'],
  ['ENOENT', 'nothing'],
  // Its queue is full: somebody listens, and is slow.
  ['EAGAIN', 'live socket'],
  // A socket of another type: not for us, but somebody's.
  ['EPROTOTYPE', 'live socket'],
]);

const LOCK_EX_NB = 2 | 4;
/** Whoever holds the lock needs it for one probe. */
const LOCK_ATTEMPTS = 100;
const LOCK_PAUSE_MS = 50;

/**
 * Removes a socket that nobody listens on, and nothing else: of processes that start at the same time and all find it,
 * one after the other looks again under a lock, so that none removes what another has just put there. The kernel drops
 * the lock with its holder; the file stays.
 */
export async function removeStale(path: string): Promise<void> {
  const { default: koffi } = await import('koffi');
  const flock = koffi.load(null).func('int flock(int fd, int operation)') as (fd: number, operation: number) => number;
  const lockFile = join(dirname(path), `.${basename(path)}.lock`);
  const lock = openSync(lockFile, constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW, 0o600);
  try {
    for (let attempt = 0; flock(lock, LOCK_EX_NB) !== 0; attempt += 1) {
      if (attempt === LOCK_ATTEMPTS)
        throw new Error(`${lockFile} has been locked by another process for long; is it hanging?`);
      await delay(LOCK_PAUSE_MS);
    }
    if ((await occupantOf(path)) === 'stale socket') unlinkSync(path);
  } finally {
    closeSync(lock);
  }
}

/**
 * The process that listens at a path, as `pid 123 (containerd)`; undefined when it cannot be seen from here. The kernel
 * knows a socket by the name that it was bound with, `bound`, of which there may be several.
 */
export function listenerAt(bound: (name: string) => boolean): string | undefined {
  try {
    const inodes = readFileSync('/proc/net/unix', 'utf8')
      .split('\n')
      .map((line) => line.trim().split(/\s+/))
      .filter(([, , , flags, , , , name]) => flags === '00010000' && name !== undefined && bound(name))
      .map((columns) => `socket:[${columns[6] ?? ''}]`);
    const pid = readdirSync('/proc').find((entry) => /^\d+$/.test(entry) && holdsAny(entry, inodes));
    return pid === undefined ? undefined : `pid ${pid} (${programOf(pid)})`;
  } catch {
    // Only makes an error clearer; without /proc it is less clear.
    return undefined;
  }
}

/** By its executable: the name that a process gives itself says little (`MainThread` with Node 24 and later). */
const programOf = (pid: string): string => basename(readlinkSync(`/proc/${pid}/exe`).replace(/ \(deleted\)$/, ''));

function holdsAny(pid: string, inodes: readonly string[]): boolean {
  try {
    return readdirSync(`/proc/${pid}/fd`).some((fd) => inodes.includes(readlinkSync(`/proc/${pid}/fd/${fd}`)));
  } catch {
    // It has ended meanwhile, or its descriptors are closed.
    return false;
  }
}
