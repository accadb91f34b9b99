import { fork } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { type Server, type Socket, createConnection, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { noLog } from '../../../src/observe/index.ts';
import { type ListenOptions, type Listener, listen } from '../../../src/server/listener/listener.ts';

const isRoot = process.getuid?.() === 0;
let folder: string;
let path: string;
let backendPath: string;
const open: { close(): unknown }[] = [];
let accepted: Socket[];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'listener-'));
  path = join(folder, 'ours/shim.sock');
  backendPath = join(folder, 'containerd/containerd.sock');
  accepted = [];
});
afterEach(async () => {
  for (const socket of accepted) socket.destroy();
  for (const one of open.splice(0)) await one.close();
  rmSync(folder, { recursive: true });
});

async function start(options: Partial<ListenOptions> = {}): Promise<Listener> {
  const onConnection = (socket: Socket): void => void accepted.push(socket);
  const listener = await listen({ path, rights: { like: backendPath }, onConnection, log: noLog, ...options });
  open.push(listener);
  return listener;
}

async function listenPlainly(at: string): Promise<Server> {
  const server = createServer((socket) => socket.destroy());
  server.listen(at);
  await once(server, 'listening');
  return server;
}

/** What a killed process leaves behind. */
async function leaveStale(at: string): Promise<void> {
  mkdirSync(dirname(at), { recursive: true });
  const server = await listenPlainly(`${at}.x`);
  linkSync(`${at}.x`, at);
  server.close();
  await once(server, 'close');
}

async function startBackend(rights: { socket: number; folder: number; uid?: number; gid?: number }): Promise<Server> {
  mkdirSync(dirname(backendPath));
  const server = await listenPlainly(backendPath);
  open.push(server);
  setBackend(rights);
  return server;
}

function setBackend(rights: { socket: number; folder: number; uid?: number; gid?: number }): void {
  for (const [file, mode] of [
    [backendPath, rights.socket],
    [dirname(backendPath), rights.folder],
  ] as const) {
    chmodSync(file, mode);
    if (isRoot) chownSync(file, rights.uid ?? 0, rights.gid ?? 0);
  }
}

async function canConnect(at: string): Promise<boolean> {
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

const rights = (file: string): string => {
  const { mode, uid, gid } = lstatSync(file);
  return `${(mode & 0o7777).toString(8)} ${uid}:${gid}`;
};
const ownMode = `${process.getuid?.() ?? 0}:${process.getgid?.() ?? 0}`;

describe('the path', () => {
  test('is created with its folder, accepts connections, and leaves no other files', async () => {
    path = join(folder, 'a/b/c/shim.sock');
    await start();
    expect(await canConnect(path)).toBe(true);
    expect(readdirSync(dirname(path))).toEqual(['shim.sock']);
    await vi.waitFor(() => expect(accepted).toHaveLength(1));
  });

  test('is removed on close and can be used again', async () => {
    const listener = await start();
    await listener.close();
    expect(readdirSync(dirname(path))).toEqual([]);
    await start();
    expect(await canConnect(path)).toBe(true);
  });

  test('with a stale socket is used', async () => {
    await leaveStale(path);
    expect(await canConnect(path)).toBe(false);
    await start();
    expect(await canConnect(path)).toBe(true);
  });

  test('with a live socket is refused, saying who, and the live one goes on', async () => {
    mkdirSync(dirname(path));
    open.push(await listenPlainly(path));
    const before = [rights(path), rights(dirname(path))];
    await expect(start()).rejects.toThrow(
      new RegExp(
        `^cannot listen on ${path}: pid ${process.pid} \\(.+\\) already listens there; stop it or use another path$`,
      ),
    );
    expect(await canConnect(path)).toBe(true);
    expect([rights(path), rights(dirname(path))]).toEqual(before);
    expect(readdirSync(dirname(path))).toEqual(['shim.sock']);
  });

  test('with another shim is rejected, naming its process', async () => {
    await start();
    await expect(start()).rejects.toThrow(`pid ${process.pid}`);
    expect(await canConnect(path)).toBe(true);
  });

  test.each([
    ['a file', () => writeFileSync(path, 'precious')],
    ['a folder', () => mkdirSync(path)],
    ['a symbolic link to a socket', () => symlinkSync(backendPath, path)],
  ])('with %s is refused and left', async (_, make) => {
    await startBackend({ socket: 0o660, folder: 0o711 });
    mkdirSync(dirname(path));
    make();
    const before = lstatSync(path).ino;
    await expect(start()).rejects.toThrow(`cannot listen on ${path}: the path exists and is not a socket; remove it`);
    expect(lstatSync(path).ino).toBe(before);
    expect(readdirSync(dirname(path))).toEqual(['shim.sock']);
  });

  test('may have at most 107 bytes', async () => {
    const pathOfLength = (bytes: number): string => join(folder, 'x'.repeat(bytes - folder.length - 1));
    path = pathOfLength(107);
    await start();
    expect(await canConnect(path)).toBe(true);
    path = pathOfLength(108);
    await expect(start()).rejects.toThrow(/has 108 bytes, a socket's path at most 107; use a shorter path/);
    const deep = join(folder, 'd'.repeat(98 - folder.length - 1));
    path = join(deep, 's');
    await expect(start()).rejects.toThrow(/the folder's path has 98 bytes, at most 97 are possible/);
  });

  test('below a file is rejected', async () => {
    writeFileSync(join(folder, 'ours'), '');
    await expect(start()).rejects.toThrow(`${join(folder, 'ours')} is not a folder; use another path`);
  });

  test('that a newer process uses is neither unlinked on close nor are its permissions changed', async () => {
    const listener = await start();
    unlinkSync(path);
    open.push(await listenPlainly(path));
    chmodSync(path, 0o600);
    await startBackend({ socket: 0o666, folder: 0o755 });
    listener.mirrorBackend();
    await listener.close();
    expect(rights(path)).toBe(`600 ${ownMode}`);
    expect(await canConnect(path)).toBe(true);
  });

  test.each([false, true])('goes to one of many that start at once (stale socket there: %s)', async (stale) => {
    if (stale) await leaveStale(path);
    const results = await Promise.allSettled(Array.from({ length: 12 }, () => start()));
    const refusals = results.flatMap((result) => (result.status === 'rejected' ? [String(result.reason)] : []));
    expect(refusals).toHaveLength(11);
    for (const refusal of refusals) expect(refusal).toMatch(/already listens there|keep creating sockets there/);
    expect(await canConnect(path)).toBe(true);
    expect(readdirSync(dirname(path)).filter((name) => name !== '.shim.sock.lock')).toEqual(['shim.sock']);
  });

  test('still accepts clients that connected before close', async () => {
    const listener = await start();
    const socket = createConnection(path);
    const connected = once(socket, 'connect');
    await listener.close();
    await connected;
    await vi.waitFor(() => expect(accepted).toHaveLength(1));
    socket.destroy();
  });
});

describe('a configured mode', () => {
  test("applies to the socket, whatever the backend's mode, and to a folder of its own", async () => {
    await startBackend({ socket: 0o666, folder: 0o755 });
    await start({ rights: { mode: 0o600 } });
    expect([rights(path), rights(dirname(path))]).toEqual([`600 ${ownMode}`, `700 ${ownMode}`]);
  });

  test('gives a group access to the folder if it may connect', async () => {
    await start({ rights: { mode: 0o660 } });
    expect([rights(path), rights(dirname(path))]).toEqual([`660 ${ownMode}`, `710 ${ownMode}`]);
  });

  test('does not change the folder of another socket', async () => {
    await startBackend({ socket: 0o660, folder: 0o711 });
    await start({ neighbours: ['resize.sock'] });
    await start({ path: join(dirname(path), 'resize.sock'), rights: { mode: 0o600 } });
    expect(rights(dirname(path))).toBe(`711 ${ownMode}`);
    expect(rights(join(dirname(path), 'resize.sock'))).toBe(`600 ${ownMode}`);
  });

  test('applies to a folder that holds the socket of a killed shim', async () => {
    await startBackend({ socket: 0o660, folder: 0o711 });
    await leaveStale(join(dirname(path), 'resize.sock'));
    await start({ neighbours: ['resize.sock'] });
    expect(rights(dirname(path))).toBe(`711 ${ownMode}`);
  });
});

describe.runIf(isRoot)('rights', () => {
  test.each([
    { socket: 0o660, folder: 0o711, uid: 0, gid: 0 },
    { socket: 0o660, folder: 0o710, uid: 0, gid: 1234 },
    { socket: 0o666, folder: 0o755, uid: 1000, gid: 1000 },
    { socket: 0o600, folder: 0o700, uid: 0, gid: 0 },
    { socket: 0o777, folder: 0o1777, uid: 0, gid: 0 },
  ])('are those of the backend: %o', async (wanted) => {
    await startBackend(wanted);
    await start();
    expect(rights(path)).toBe(rights(backendPath));
    expect(rights(dirname(path))).toBe(rights(dirname(backendPath)));
  });

  test('are root only until the backend is there, then its own, then whatever it changes to', async () => {
    const listener = await start();
    expect([rights(path), rights(dirname(path))]).toEqual(['600 0:0', '700 0:0']);
    await startBackend({ socket: 0o660, folder: 0o711, gid: 1234 });
    listener.mirrorBackend();
    expect([rights(path), rights(dirname(path))]).toEqual(['660 0:1234', '711 0:1234']);
    setBackend({ socket: 0o600, folder: 0o700 });
    listener.mirrorBackend();
    expect([rights(path), rights(dirname(path))]).toEqual(['600 0:0', '700 0:0']);
  });

  test('follow a backend that starts later, without a connection', async () => {
    await start();
    await startBackend({ socket: 0o660, folder: 0o711 });
    await vi.waitFor(() => expect(rights(path)).toBe('660 0:0'), { timeout: 5000 });
  });

  test('of an existing folder for the socket alone are set', async () => {
    mkdirSync(dirname(path), { mode: 0o755 });
    await startBackend({ socket: 0o660, folder: 0o710, gid: 1234 });
    await start();
    expect(rights(dirname(path))).toBe('710 0:1234');
  });

  test('of an existing folder are root-only while there is no backend', async () => {
    mkdirSync(dirname(path), { mode: 0o755 });
    await start();
    expect(rights(dirname(path))).toBe('700 0:0');
  });

  test('of a folder with other files are not changed; the socket gets fewer if more users can reach it', async () => {
    chmodSync(folder, 0o755);
    mkdirSync(dirname(path), { mode: 0o755 });
    writeFileSync(join(dirname(path), 'other'), '');
    await startBackend({ socket: 0o666, folder: 0o700 });
    const listener = await start();
    expect(rights(dirname(path))).toBe('755 0:0');
    expect(rights(path)).toBe('600 0:0');
    setBackend({ socket: 0o666, folder: 0o710, gid: 1234 });
    listener.mirrorBackend();
    expect(rights(path)).toBe('660 0:1234');
    setBackend({ socket: 0o666, folder: 0o711, gid: 1234 });
    listener.mirrorBackend();
    expect(rights(path)).toBe('666 0:1234');
  });

  test('of a folder shared with the backend are not changed', async () => {
    path = join(dirname(backendPath), 'shim.sock');
    mkdirSync(dirname(path), { mode: 0o755 });
    await start();
    expect(rights(dirname(path))).toBe('755 0:0');
  });

  test('of an empty world-writable folder are not changed', async () => {
    mkdirSync(dirname(path));
    chmodSync(dirname(path), 0o1777);
    await start();
    expect(rights(dirname(path))).toBe('1777 0:0');
    expect(rights(path)).toBe('600 0:0');
  });

  test('follow the backend through a symbolic link', async () => {
    await startBackend({ socket: 0o660, folder: 0o711, gid: 1234 });
    symlinkSync(backendPath, join(folder, 'link.sock'));
    backendPath = join(folder, 'link.sock');
    await start();
    expect(rights(path)).toBe('660 0:1234');
    backendPath = join(folder, 'containerd/containerd.sock');
  });

  test('are at no instant wider, as another process sees it that looks as fast as it can', async () => {
    await startBackend({ socket: 0o620, folder: 0o710, gid: 1234 });
    const seen = await watched(['socket 620 0 1234'], async (isMet) => {
      for (let cycle = 0; cycle < 150 || !isMet(); cycle += 1) {
        rmSync(dirname(path), { recursive: true, force: true });
        if (cycle % 2 === 0) mkdirSync(dirname(path), { mode: 0o700 });
        const listener = await listen({
          path,
          rights: { like: backendPath },
          onConnection: () => undefined,
          log: noLog,
        });
        await new Promise(setImmediate);
        await listener.close();
      }
    });
    const allowed = [
      ...['folder 700 0 0', 'folder 700 0 1234', 'folder 710 0 1234'],
      ...['socket 600 0 0', 'socket 600 0 1234', 'socket 620 0 1234'],
    ];
    expect(seen.filter((what) => !allowed.includes(what))).toEqual([]);
  });

  test('are at no instant wider than before or after when the backend changes its own', async () => {
    await startBackend({ socket: 0o660, folder: 0o710, gid: 1234 });
    const listener = await start();
    const seen = await watched(['socket 660 0 1234', 'socket 600 0 5678'], async (isMet) => {
      for (let cycle = 0; cycle < 150 || !isMet(); cycle += 1) {
        setBackend({ socket: 0o600, folder: 0o700, gid: 5678 });
        listener.mirrorBackend();
        setBackend({ socket: 0o660, folder: 0o710, gid: 1234 });
        listener.mirrorBackend();
        await new Promise(setImmediate);
      }
    });
    // Group 5678 is to have nothing at any time.
    expect(seen.filter((what) => / 5678$/.test(what) && !/ [67]00 /.test(what))).toEqual([]);
  });
});

/**
 * What another process sees of our folder and the sockets in it while this runs: each kind, mode, user and group met. Others keep the
 * processors busy at times: `isMet` says whether all that has to be met has been, and so whether it has looked at all.
 */
async function watched(
  toBeMet: readonly string[],
  run: (isMet: () => boolean) => Promise<void>,
): Promise<readonly string[]> {
  const watcherFile = join(folder, 'watcher.mjs');
  writeFileSync(
    watcherFile,
    `import { lstatSync, readdirSync } from 'node:fs';
    const folder = ${JSON.stringify(dirname(path))};
    const seen = new Set();
    const look = (file, kind) => {
      try {
        const { mode, uid, gid } = lstatSync(file);
        const what = [kind, (mode & 0o7777).toString(8), uid, gid].join(' ');
        if (!seen.has(what)) process.send(what);
        seen.add(what);
      } catch {}
    };
    process.send('ready');
    const round = () => {
      for (let i = 0; i < 200; i += 1) {
        look(folder, 'folder');
        try { for (const name of readdirSync(folder)) look(folder + '/' + name, 'socket'); } catch {}
      }
      setImmediate(round);
    };
    process.on('message', () => process.send('stopped', () => process.exit()));
    round();`,
  );
  const watcher = fork(watcherFile, { execArgv: [] });
  const seen: string[] = [];
  await once(watcher, 'message');
  const stopped = new Promise<void>((resolve) => {
    watcher.on('message', (what: string) => (what === 'stopped' ? resolve() : void seen.push(what)));
  });
  const before = process.umask(0);
  try {
    await run(() => toBeMet.every((what) => seen.includes(what)));
  } finally {
    process.umask(before);
    watcher.send('stop');
  }
  await stopped;
  return seen;
}
