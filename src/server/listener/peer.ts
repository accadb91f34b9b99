import type { Socket } from 'node:net';
import { type Log, messageOf } from '../../core/index.ts';

/** Returns the id of the process that has connected a unix socket; undefined if it is not known. */
export type PeerOf = (socket: Socket) => number | undefined;

/** Returns no peer: used if peers cannot be read. */
export const unknownPeer: PeerOf = () => undefined;

// asm-generic/socket.h; the values of all architectures that Node supports.
const SOL_SOCKET = 1;
const SO_PEERCRED = 17;
/** struct ucred of unix(7): pid, uid, gid. */
const UCRED_SIZE = 12;

/** Node has no public way to a socket's descriptor. */
interface WithHandle {
  readonly _handle?: { readonly fd?: number } | null;
}

type Getsockopt = (descriptor: number, level: number, name: number, value: Int32Array, length: Int32Array) => number;

/**
 * Loads the function that reads the peer of a socket (SO_PEERCRED of unix(7)); Node has no call for it. Without koffi,
 * a native part, no peer is known, and the shim serves nevertheless.
 */
export async function loadPeerOf(log: Log): Promise<PeerOf> {
  try {
    const { default: koffi } = await import('koffi');
    const signature = 'int getsockopt(int fd, int level, int name, void *value, void *length)';
    const getsockopt = koffi.load(null).func(signature) as Getsockopt;
    return (socket) => peerOf(socket, getsockopt);
  } catch (error) {
    log.warn({ error: messageOf(error) }, 'processes of client connections unknown');
    return unknownPeer;
  }
}

function peerOf(socket: Socket, getsockopt: Getsockopt): number | undefined {
  const descriptor = (socket as unknown as WithHandle)._handle?.fd;
  if (descriptor === undefined || descriptor < 0) return undefined;
  const [credentials, length] = [new Int32Array(3), new Int32Array([UCRED_SIZE])];
  if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, credentials, length) !== 0) return undefined;
  const [pid = 0] = credentials;
  // 0: a process that is not visible in this PID namespace.
  return pid > 0 ? pid : undefined;
}
