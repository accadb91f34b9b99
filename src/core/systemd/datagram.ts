import { closeSync } from 'node:fs';
import { endianness } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { nameOfErrno } from '../errno.ts';

// Node has no unix datagram sockets, and npm packages for them compile at installation. koffi is already a dependency
// (src/tmpfs) and does not: two libc calls are enough.

// From linux/socket.h, linux/net.h and asm-generic/fcntl.h. The same on all architectures that Node supports.
const AF_UNIX = 1;
const SOCK_DGRAM = 2;
const SOCK_CLOEXEC = 0o2000000;
const MSG_DONTWAIT = 0x40;
const MSG_NOSIGNAL = 0x4000;

/** Size of sun_path in unix(7), including the terminating null byte. */
const LONGEST_NAME = 108;

/** Interval to retry while the receiver's queue is full. libuv does not know the socket: no event to wait for. */
const FULL_QUEUE_MS = 20;
const FULL_QUEUE_ATTEMPTS = 50;

type SocketCall = (domain: number, type: number, protocol: number) => number;
type Sendto = (fd: number, bytes: Buffer, length: number, flags: number, address: Buffer, size: number) => number;

/** Sends to one unix datagram socket. */
export interface DatagramSender {
  /** Sends a datagram. Waits up to 1 s if the receiver's queue is full. Rejects with the kernel's error name. */
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

/** Encodes a struct sockaddr_un. Throws for an invalid name. */
export function socketAddress(name: string): Buffer {
  const isAbstract = name.startsWith('@');
  if (!isAbstract && !name.startsWith('/')) throw new Error(`${name} is neither an absolute path nor an abstract name`);
  // An abstract name starts with a null byte and extends to the end of the address; a path ends with a null byte.
  const path = Buffer.from(isAbstract ? `\0${name.slice(1)}` : `${name}\0`);
  if (path.length > LONGEST_NAME) throw new Error(`${name} is too long for a socket name`);
  const family = Buffer.alloc(2);
  if (endianness() === 'LE') family.writeUInt16LE(AF_UNIX);
  else family.writeUInt16BE(AF_UNIX);
  return Buffer.concat([family, path]);
}
