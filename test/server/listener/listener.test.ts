import { once } from 'node:events';
import { chmodSync, lstatSync, mkdirSync, readdirSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createConnection } from 'node:net';
import { dirname, join } from 'node:path';
import { describe, expect, onTestFinished, test, vi } from 'vitest';

import {
  canConnect,
  ListenerFolder,
  leaveStale,
  listenPlainly,
  ownOwner,
  rightsOf,
} from '../../support/daemon/listener-folder.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

const shim = new ListenerFolder();

describe('listen', () => {
  test('creates socket and folder, accepts connections, and leaves no other files', async () => {
    shim.path = join(shim.root, 'a/b/c/shim.sock');
    await shim.start();
    expect(await canConnect(shim.path)).toBe(true);
    expect(readdirSync(dirname(shim.path))).toEqual(['shim.sock']);
    await vi.waitFor(() => expect(shim.accepted).toHaveLength(1), LONG_WAIT);
  });

  test('removes the socket on close; the path can be used again', async () => {
    const listener = await shim.start();
    await listener.close();
    expect(readdirSync(dirname(shim.path))).toEqual([]);
    await shim.start();
    expect(await canConnect(shim.path)).toBe(true);
  });

  test('replaces a stale socket', async () => {
    await leaveStale(shim.path);
    expect(await canConnect(shim.path)).toBe(false);
    await shim.start();
    expect(await canConnect(shim.path)).toBe(true);
  });

  test('rejects the path of a live socket with the process that listens, and does not touch that socket', async () => {
    mkdirSync(dirname(shim.path));
    shim.open.push(await listenPlainly(shim.path));
    const before = [rightsOf(shim.path), rightsOf(dirname(shim.path))];
    await expect(shim.start()).rejects.toThrow(
      new RegExp(
        `^cannot listen on ${shim.path}: pid ${process.pid} \\(.+\\) already listens there; stop it or use another path$`,
      ),
    );
    expect(await canConnect(shim.path)).toBe(true);
    expect([rightsOf(shim.path), rightsOf(dirname(shim.path))]).toEqual(before);
    expect(readdirSync(dirname(shim.path))).toEqual(['shim.sock']);
  });

  test('rejects the path of another shim with the process id of that shim', async () => {
    await shim.start();
    await expect(shim.start()).rejects.toThrow(`pid ${process.pid}`);
    expect(await canConnect(shim.path)).toBe(true);
  });

  test.each([
    ['a file', () => writeFileSync(shim.path, 'precious')],
    ['a folder', () => mkdirSync(shim.path)],
    ['a symbolic link to a socket', () => symlinkSync(shim.backendPath, shim.path)],
  ])('rejects a path that is %s, and does not change it', async (_, make) => {
    await shim.startBackend({ socket: 0o660, folder: 0o711 });
    mkdirSync(dirname(shim.path));
    make();
    const before = lstatSync(shim.path).ino;
    await expect(shim.start()).rejects.toThrow(
      `cannot listen on ${shim.path}: the path exists and is not a socket; remove it`,
    );
    expect(lstatSync(shim.path).ino).toBe(before);
    expect(readdirSync(dirname(shim.path))).toEqual(['shim.sock']);
  });

  test('accepts a path of up to 107 bytes, and rejects longer ones', async () => {
    const pathOfLength = (bytes: number): string => join(shim.root, 'x'.repeat(bytes - shim.root.length - 1));
    shim.path = pathOfLength(107);
    await shim.start();
    expect(await canConnect(shim.path)).toBe(true);
    shim.path = pathOfLength(108);
    await expect(shim.start()).rejects.toThrow(/has 108 bytes, a socket's path at most 107; use a shorter path/);
    const deep = join(shim.root, 'd'.repeat(98 - shim.root.length - 1));
    shim.path = join(deep, 's');
    const random = vi.spyOn(Math, 'random');
    onTestFinished(() => random.mockRestore());
    // The temporary name has the same length for each number.
    for (const number of [0, 0.01, 0.99]) {
      random.mockReturnValue(number);
      await expect(shim.start()).rejects.toThrow(/the folder's path has 98 bytes, at most 97 are possible/);
    }
  });

  test('rejects a path below a file', async () => {
    writeFileSync(join(shim.root, 'ours'), '');
    await expect(shim.start()).rejects.toThrow(`${join(shim.root, 'ours')} is not a folder; use another path`);
  });

  test('neither removes nor changes the socket of a newer process on the path', async () => {
    const listener = await shim.start();
    unlinkSync(shim.path);
    shim.open.push(await listenPlainly(shim.path));
    chmodSync(shim.path, 0o600);
    await shim.startBackend({ socket: 0o666, folder: 0o755 });
    listener.mirrorBackend();
    await listener.close();
    expect(rightsOf(shim.path)).toBe(`600 ${ownOwner}`);
    expect(await canConnect(shim.path)).toBe(true);
  });

  test.each([false, true])('one of twelve concurrent starts succeeds (stale socket: %s)', async (stale) => {
    if (stale) await leaveStale(shim.path);
    const results = await Promise.allSettled(Array.from({ length: 12 }, () => shim.start()));
    const refusals = results.flatMap((result) => (result.status === 'rejected' ? [String(result.reason)] : []));
    expect(refusals).toHaveLength(11);
    for (const refusal of refusals) expect(refusal).toMatch(/already listens there|keep creating sockets there/);
    expect(await canConnect(shim.path)).toBe(true);
    expect(readdirSync(dirname(shim.path)).filter((name) => name !== '.shim.sock.lock')).toEqual(['shim.sock']);
  });

  test('accepts clients that have connected before close', async () => {
    const listener = await shim.start();
    const socket = createConnection(shim.path);
    const connected = once(socket, 'connect');
    await listener.close();
    await connected;
    await vi.waitFor(() => expect(shim.accepted).toHaveLength(1), LONG_WAIT);
    socket.destroy();
  });

  test.each([1, 20])('accepts %i clients that connect in the event loop turn of the close', async (count) => {
    const listener = await shim.start();
    // Waits for a read, after which setImmediate runs before any connection is accepted.
    await readFile(import.meta.filename);
    const sockets = Array.from({ length: count }, () => createConnection(shim.path));
    for (const socket of sockets) socket.on('error', () => undefined);
    await listener.close();
    expect(shim.accepted).toHaveLength(count);
    for (const socket of sockets) socket.destroy();
  });
});
