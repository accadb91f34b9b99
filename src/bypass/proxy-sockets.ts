import { readFileSync, readdirSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { errnoOf } from '../core/errors/index.ts';
import { SS_CONNECTED, SS_CONNECTING, unixSockets } from '../core/procfs/index.ts';

/** Descriptors of a proxy that serves a unix socket, by what they are. */
export interface ProxyDescriptors {
  /** Connections of clients. */
  readonly clients: readonly number[];
  /** Everything through which bytes come from the backend: connections to it, and pipes. */
  readonly fromBackend: readonly number[];
  /** Those of them that are connections to it. */
  readonly backends: readonly number[];
  /** The paths of the sockets that have connections which nobody has accepted yet. */
  readonly unaccepted: ReadonlySet<string>;
}

/** Finds the descriptors of a process that serves the socket `listen`. Throws if its /proc cannot be read. */
export function descriptorsOf(procRoot: string, pid: number, listen: string): ProxyDescriptors {
  const folder = join(procRoot, String(pid), 'fd');
  const sockets = unixSockets(readFileSync(join(procRoot, String(pid), 'net/unix'), 'utf8'));
  const byInode = new Map(sockets.map((socket) => [socket.inode, socket]));
  const [clients, fromBackend, backends]: [number[], number[], number[]] = [[], [], []];
  for (const name of readdirSync(folder)) {
    const [, kind, inode = ''] = /^(socket|pipe):\[(\d+)\]$/.exec(targetOf(join(folder, name))) ?? [];
    if (kind === 'pipe') fromBackend.push(Number(name));
    const socket = kind === 'socket' ? byInode.get(inode) : undefined;
    if (socket?.state !== SS_CONNECTED) continue;
    // An accepted socket has the path of the one that listens; one that has connected has none.
    if (socket.path === listen) clients.push(Number(name));
    else {
      fromBackend.push(Number(name));
      backends.push(Number(name));
    }
  }
  // Until a connection is accepted, its other end belongs to no process, and has the path of the socket that listens.
  const waiting = sockets.filter(({ state }) => state === SS_CONNECTING);
  return { clients, fromBackend, backends, unaccepted: new Set(waiting.map(({ path }) => path)) };
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
