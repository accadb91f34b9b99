import { readFileSync, readdirSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { errnoOf } from '../core/errors/index.ts';

/** Descriptors of a proxy that serves a unix socket, by what they are. */
export interface ProxyDescriptors {
  /** Connections of clients. */
  readonly clients: readonly number[];
  /** Everything through which bytes come from the backend: connections to it, and pipes. */
  readonly fromBackend: readonly number[];
}

// Values in /proc/net/unix, from linux/net.h.
const SS_CONNECTED = 3;

/** Finds the descriptors of a process that serves the socket `listen`. Throws if its /proc cannot be read. */
export function descriptorsOf(procRoot: string, pid: number, listen: string): ProxyDescriptors {
  const folder = join(procRoot, String(pid), 'fd');
  const sockets = unixSockets(readFileSync(join(procRoot, String(pid), 'net/unix'), 'utf8'));
  const [clients, fromBackend]: [number[], number[]] = [[], []];
  for (const name of readdirSync(folder)) {
    const [, kind, inode = ''] = /^(socket|pipe):\[(\d+)\]$/.exec(targetOf(join(folder, name))) ?? [];
    if (kind === 'pipe') fromBackend.push(Number(name));
    const socket = kind === 'socket' ? sockets.get(inode) : undefined;
    if (socket?.state !== SS_CONNECTED) continue;
    // An accepted socket has the path of the one that listens; one that has connected has none.
    if (socket.path === listen) clients.push(Number(name));
    else fromBackend.push(Number(name));
  }
  return { clients, fromBackend };
}

/** A descriptor may be closed while the folder is read. */
function targetOf(link: string): string {
  try {
    return readlinkSync(link);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return '';
    throw error;
  }
}

interface UnixSocket {
  readonly state: number;
  readonly path: string;
}

/** Parses /proc/net/unix: address, references, protocol, flags, type, state, inode, path. Returns the sockets by inode. */
export function unixSockets(table: string): ReadonlyMap<string, UnixSocket> {
  const found = new Map<string, UnixSocket>();
  for (const line of table.split('\n').slice(1)) {
    const [, , , , , state = '', inode, path = ''] = line.trim().split(/\s+/);
    if (inode !== undefined) found.set(inode, { state: Number.parseInt(state, 16), path });
  }
  return found;
}
