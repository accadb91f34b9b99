import { fstatSync, readFileSync } from 'node:fs';
import { messageOf } from '../errors.ts';
import { SO_ACCEPTCON, SOCK_STREAM, unixSockets } from '../unix-sockets.ts';

/** A socket from systemd cannot be used. The message has the cause and the remedy. */
export class PassedSocketError extends Error {
  override readonly name = 'PassedSocketError';
}

/** FileDescriptorName= of the socket units. */
export const socketNames = ['cri', 'resize'] as const;
export type SocketName = (typeof socketNames)[number];

/** A listening socket that systemd created and keeps open when the shim exits. */
export interface PassedSocket {
  readonly descriptor: number;
  /** Its path, from /proc/net/unix. */
  readonly path: string;
}

export type PassedSockets = Readonly<Partial<Record<SocketName, PassedSocket>>>;

/** SD_LISTEN_FDS_START of sd_listen_fds(3). */
const FIRST = 3;

/**
 * Returns the sockets that systemd has passed to this process, by name (sd_listen_fds(3)). Removes the variables from
 * the environment, because they are not for child processes. Throws {@link PassedSocketError} for an unknown or
 * duplicate name, and for descriptors that are not listening unix stream sockets. A single socket without a name is
 * `cri`.
 */
export function takePassedSockets(env: NodeJS.ProcessEnv, pid: number): PassedSockets {
  const { LISTEN_PID: pidText, LISTEN_FDS: count, LISTEN_FDNAMES: names } = env;
  for (const name of ['LISTEN_PID', 'LISTEN_FDS', 'LISTEN_FDNAMES']) Reflect.deleteProperty(env, name);
  if (count === undefined || pidText !== String(pid)) return {};
  if (!/^\d{1,3}$/.test(count)) throw new PassedSocketError(`LISTEN_FDS is ${quoted(count)}, which is not a number`);
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
  const socket = unixSockets(readFileSync('/proc/net/unix', 'utf8')).find((one) => one.inode === inode);
  if (socket === undefined) throw wrong('is no unix socket');
  if (socket.type !== SOCK_STREAM) throw wrong('is no stream socket');
  if ((socket.flags & SO_ACCEPTCON) === 0) throw wrong('does not listen');
  return { descriptor, path: socket.path };
}

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
