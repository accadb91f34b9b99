import { fstatSync, readFileSync } from 'node:fs';
import { messageOf } from '../core/errors/index.ts';

/** What systemd has passed on cannot be used: one sentence that says what and what to do. */
export class PassedSocketError extends Error {
  override readonly name = 'PassedSocketError';
}

/** FileDescriptorName= of the socket units. */
export const socketNames = ['cri', 'resize'] as const;
export type SocketName = (typeof socketNames)[number];

/** A listening socket that systemd has made, and keeps when we are gone. */
export interface PassedSocket {
  readonly descriptor: number;
  /** What it was bound to, as /proc/net/unix has it. */
  readonly path: string;
}

export type PassedSockets = Readonly<Partial<Record<SocketName, PassedSocket>>>;

/** SD_LISTEN_FDS_START of sd_listen_fds(3). */
const FIRST = 3;

/**
 * The sockets that systemd has passed to this process, by their names (sd_listen_fds(3)); none where it has not. Takes the variables
 * out of the environment: our children are not meant. Throws {@link PassedSocketError} for a name that is not known or given
 * twice, and for what is not a unix stream socket that listens. One socket without a name is `cri`.
 */
export function takePassedSockets(env: NodeJS.ProcessEnv, pid: number): PassedSockets {
  const { LISTEN_PID: meant, LISTEN_FDS: count, LISTEN_FDNAMES: names } = env;
  for (const name of ['LISTEN_PID', 'LISTEN_FDS', 'LISTEN_FDNAMES']) Reflect.deleteProperty(env, name);
  if (count === undefined || meant !== String(pid)) return {};
  if (!/^\d{1,3}$/.test(count)) throw new PassedSocketError(`LISTEN_FDS is ${quoted(count)}, which is no number`);
  const sockets: Partial<Record<SocketName, PassedSocket>> = {};
  for (const [index, name] of namesOf(Number(count), names).entries()) {
    if (name in sockets)
      throw new PassedSocketError(
        `LISTEN_FDNAMES: two sockets are named ${name}; give each a FileDescriptorName= of its own`,
      );
    sockets[name] = passedSocket(FIRST + index, name);
  }
  return sockets;
}

function namesOf(count: number, given: string | undefined): readonly SocketName[] {
  if (count === 0) return [];
  if (given === undefined && count === 1) return ['cri'];
  const names = given?.split(':') ?? [];
  if (names.length !== count)
    throw new PassedSocketError(
      `LISTEN_FDS is ${count}, and LISTEN_FDNAMES has ${names.length} names; give each socket unit a FileDescriptorName=`,
    );
  return names.map((name) => {
    const known = socketNames.find((one) => one === name);
    if (known !== undefined) return known;
    throw new PassedSocketError(
      `LISTEN_FDNAMES: ${quoted(name)} is not known; FileDescriptorName= of a socket unit is one of ${socketNames.join(', ')}`,
    );
  });
}

function passedSocket(descriptor: number, name: SocketName): PassedSocket {
  const wrong = (what: string): PassedSocketError =>
    new PassedSocketError(
      `the socket ${name} that systemd has passed (descriptor ${descriptor}) ${what}; its unit has to have ListenStream= with an absolute path`,
    );
  const inode = inodeOf(descriptor, wrong);
  // One line a socket: address, references, protocol, flags, type, state, inode, name.
  const columns = readFileSync('/proc/net/unix', 'utf8')
    .split('\n')
    .map((line) => line.trim().split(/\s+/))
    .find((line) => line[6] === inode);
  if (columns === undefined) throw wrong('is no unix socket');
  const [, , , flags = '', type, , , path = ''] = columns;
  if (Number.parseInt(type ?? '', 16) !== SOCK_STREAM) throw wrong('is no stream socket');
  if ((Number.parseInt(flags, 16) & SO_ACCEPTCON) === 0) throw wrong('does not listen');
  return { descriptor, path };
}

// Of /proc/net/unix: linux/net.h.
const SOCK_STREAM = 1;
const SO_ACCEPTCON = 1 << 16;

function inodeOf(descriptor: number, wrong: (what: string) => PassedSocketError): string {
  try {
    const stats = fstatSync(descriptor, { bigint: true });
    if (stats.isSocket()) return String(stats.ino);
  } catch (error) {
    throw wrong(`cannot be looked at (${messageOf(error)})`);
  }
  throw wrong('is no socket');
}

const quoted = (text: string): string => JSON.stringify(text);
