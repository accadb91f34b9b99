import { once } from 'node:events';
import { chmodSync, chownSync, linkSync, lstatSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createConnection, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach } from 'vitest';
import { noLog } from '../../../src/core/observe/interfaces.ts';
import { type Listener, type ListenOptions, listen } from '../../../src/server/listener/listener.ts';

export const isRoot = process.getuid?.() === 0;
/** Owner of files that this process creates, as {@link rightsOf} prints it. */
export const ownOwner = `${process.getuid?.() ?? 0}:${process.getgid?.() ?? 0}`;

interface BackendRights {
  readonly socket: number;
  readonly folder: number;
  readonly uid?: number;
  readonly gid?: number;
}

/** A temporary folder with places for the shim's socket and the backend's. Each test gets a new one. */
export class ListenerFolder {
  root = '';
  /** The path on which {@link start} listens. */
  path = '';
  backendPath = '';
  accepted: Socket[] = [];
  /** Closed after the test. */
  readonly open: { close(): unknown }[] = [];

  constructor() {
    beforeEach(() => {
      this.root = mkdtempSync(join(tmpdir(), 'listener-'));
      this.path = join(this.root, 'ours/shim.sock');
      this.backendPath = join(this.root, 'containerd/containerd.sock');
      this.accepted = [];
    });
    afterEach(async () => {
      for (const socket of this.accepted) socket.destroy();
      for (const one of this.open.splice(0)) await one.close();
      rmSync(this.root, { recursive: true });
    });
  }

  async start(options: Partial<ListenOptions> = {}): Promise<Listener> {
    const listener = await listen({
      path: this.path,
      rights: { like: this.backendPath },
      onConnection: (socket) => void this.accepted.push(socket),
      log: noLog,
      ...options,
    });
    this.open.push(listener);
    return listener;
  }

  async startBackend(rights: BackendRights): Promise<void> {
    mkdirSync(dirname(this.backendPath));
    this.open.push(await listenPlainly(this.backendPath));
    this.setBackend(rights);
  }

  setBackend(rights: BackendRights): void {
    for (const [file, mode] of [
      [this.backendPath, rights.socket],
      [dirname(this.backendPath), rights.folder],
    ] as const) {
      chmodSync(file, mode);
      if (isRoot) chownSync(file, rights.uid ?? 0, rights.gid ?? 0);
    }
  }
}

/** Returns a plain server, which does not use the shim's listener. It closes each connection. */
export async function listenPlainly(at: string): Promise<Server> {
  const server = createServer((socket) => socket.destroy());
  server.listen(at);
  await once(server, 'listening');
  return server;
}

/** Creates a socket that nobody listens on, as a killed process leaves it. */
export async function leaveStale(at: string): Promise<void> {
  mkdirSync(dirname(at), { recursive: true });
  const server = await listenPlainly(`${at}.x`);
  linkSync(`${at}.x`, at);
  server.close();
  await once(server, 'close');
}

export async function canConnect(at: string): Promise<boolean> {
  const socket = createConnection(at);
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

/** Returns mode, owner and group of a file: `660 0:1234`. */
export function rightsOf(file: string): string {
  const { mode, uid, gid } = lstatSync(file);
  return `${(mode & 0o7777).toString(8)} ${uid}:${gid}`;
}
