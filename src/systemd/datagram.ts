import { closeSync } from 'node:fs';
import { endianness } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { nameOfErrno } from '../core/errors/index.ts';

// Node has no unix datagram sockets, and what npm has for them is compiled when it is installed, against the machine's own
// headers. koffi is here already (src/tmpfs) and needs neither: two calls of libc are all there is to it.

// linux/socket.h, linux/net.h, asm-generic/fcntl.h: the same on every architecture that Node is built for.
const AF_UNIX = 1;
const SOCK_DGRAM = 2;
const SOCK_CLOEXEC = 0o2000000;
const MSG_DONTWAIT = 0x40;
const MSG_NOSIGNAL = 0x4000;

/** sun_path of unix(7), the closing zero included. */
const LONGEST_NAME = 108;

/** Full queues empty within that; there is no event to wait for where libuv knows nothing of the socket. */
const FULL_QUEUE_MS = 20;
const FULL_QUEUE_ATTEMPTS = 50;

type SocketCall = (domain: number, type: number, protocol: number) => number;
type Sendto = (fd: number, bytes: Buffer, length: number, flags: number, address: Buffer, size: number) => number;

/** Sends to one unix datagram socket. */
export interface DatagramSender {
  /** Waits for up to a second while the receiver's queue is full. Rejects with the kernel's name of the error. */
  send(text: string): Promise<void>;
  close(): void;
}

/**
 * Opens a socket to send from.
 * @param name absolute path, or `@` and an abstract name (unix(7)), as systemd writes them
 */
export async function openDatagramSender(name: string): Promise<DatagramSender> {
  const address = socketAddress(name);
  const { default: koffi } = await import('koffi');
  const libc = koffi.load(null);
  const socket = libc.func('int socket(int domain, int type, int protocol)') as SocketCall;
  const sendto = libc.func('sendto', 'long', ['int', 'void *', 'size_t', 'int', 'void *', 'uint']) as Sendto;
  const descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) throw new Error(`socket: ${nameOfErrno(koffi.errno())}`);
  return {
    async send(text) {
      const bytes = Buffer.from(text);
      for (let attempt = 1; ; attempt += 1) {
        const sent = sendto(descriptor, bytes, bytes.length, MSG_DONTWAIT | MSG_NOSIGNAL, address, address.length);
        if (sent >= 0) return;
        const errno = nameOfErrno(koffi.errno());
        if (errno !== 'EAGAIN' || attempt === FULL_QUEUE_ATTEMPTS) throw new Error(`sendto ${name}: ${errno}`);
        await delay(FULL_QUEUE_MS);
      }
    },
    close: () => closeSync(descriptor),
  };
}

/** struct sockaddr_un. Throws for a name that is none. */
export function socketAddress(name: string): Buffer {
  const isAbstract = name.startsWith('@');
  if (!isAbstract && !name.startsWith('/')) throw new Error(`${name} is neither an absolute path nor an abstract name`);
  // An abstract name begins with a zero and ends with the address; a path ends with a zero.
  const path = Buffer.from(isAbstract ? `\0${name.slice(1)}` : `${name}\0`);
  if (path.length > LONGEST_NAME) throw new Error(`${name} is longer than the name of a socket can be`);
  const family = Buffer.alloc(2);
  if (endianness() === 'LE') family.writeUInt16LE(AF_UNIX);
  else family.writeUInt16BE(AF_UNIX);
  return Buffer.concat([family, path]);
}
