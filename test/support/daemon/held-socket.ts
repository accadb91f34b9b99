import { closeSync } from 'node:fs';
import koffi from 'koffi';
import { socketAddress } from '../../../src/core/systemd/datagram.ts';

const libc = koffi.load(null);
const socket = libc.func('int socket(int domain, int type, int protocol)') as (...all: number[]) => number;
const bind = libc.func('bind', 'int', ['int', 'void *', 'uint']) as (fd: number, to: Buffer, size: number) => number;
const listen = libc.func('int listen(int fd, int backlog)') as (fd: number, backlog: number) => number;

const AF_UNIX = 1;
const SOCK_CLOEXEC = 0o2000000;
/** linux/net.h */
export const SocketType = { stream: 1, datagram: 2, seqpacket: 5 } as const;

/** A unix socket that is open but never accepted on, as systemd holds the sockets of its units. */
export class HeldSocket {
  readonly descriptor: number;

  constructor(
    readonly path: string,
    { type = SocketType.stream, listens = true }: { type?: number; listens?: boolean } = {},
  ) {
    this.descriptor = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    const address = socketAddress(path);
    if (bind(this.descriptor, address, address.length) !== 0) throw new Error(`bind ${path}: ${koffi.errno()}`);
    if (listens && listen(this.descriptor, 4096) !== 0) throw new Error(`listen ${path}: ${koffi.errno()}`);
  }

  close(): void {
    closeSync(this.descriptor);
  }
}

/** The guarantees of sd_listen_fds(3) for the started process: descriptors from 3 on, and variables with its pid. */
export interface PassedOn {
  readonly env: NodeJS.ProcessEnv;
  /** For `stdio`, after the first three entries. */
  readonly descriptors: readonly number[];
  /** Runs the rest of its arguments in the same process. */
  readonly before: readonly string[];
}

/** A descriptor with the name that FileDescriptorName= of its unit sets. */
export type NamedDescriptor = readonly [name: string, descriptor: number];

export function passOn(sockets: readonly NamedDescriptor[]): PassedOn {
  return {
    env: { LISTEN_FDS: String(sockets.length), LISTEN_FDNAMES: sockets.map(([name]) => name).join(':') },
    descriptors: sockets.map(([, descriptor]) => descriptor),
    before: ['/bin/sh', '-c', 'LISTEN_PID=$$ exec "$@"', 'sh'],
  };
}
