import { fork } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { noLog } from '../../../src/core/observe/interfaces.ts';
import { listen } from '../../../src/server/listener/listener.ts';

import { isRoot, ListenerFolder, leaveStale, ownOwner, rightsOf } from '../../support/daemon/listener-folder.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

const shim = new ListenerFolder();

describe('rights with a configured mode', () => {
  test('a configured mode applies to the socket and its own folder, regardless of the mode of the backend', async () => {
    await shim.startBackend({ socket: 0o666, folder: 0o755 });
    await shim.start({ rights: { mode: 0o600 } });
    expect([rightsOf(shim.path), rightsOf(dirname(shim.path))]).toEqual([`600 ${ownOwner}`, `700 ${ownOwner}`]);
  });

  test('a configured mode with group access lets the group enter the folder', async () => {
    await shim.start({ rights: { mode: 0o660 } });
    expect([rightsOf(shim.path), rightsOf(dirname(shim.path))]).toEqual([`660 ${ownOwner}`, `710 ${ownOwner}`]);
  });

  test('a configured mode does not change a folder that another socket has set up', async () => {
    await shim.startBackend({ socket: 0o660, folder: 0o711 });
    await shim.start({ neighbours: ['resize.sock'] });
    await shim.start({ path: join(dirname(shim.path), 'resize.sock'), rights: { mode: 0o600 } });
    expect(rightsOf(dirname(shim.path))).toBe(`711 ${ownOwner}`);
    expect(rightsOf(join(dirname(shim.path), 'resize.sock'))).toBe(`600 ${ownOwner}`);
  });

  test('the rights are set on a folder that contains the stale resize socket of a killed shim', async () => {
    await shim.startBackend({ socket: 0o660, folder: 0o711 });
    await leaveStale(join(dirname(shim.path), 'resize.sock'));
    await shim.start({ neighbours: ['resize.sock'] });
    expect(rightsOf(dirname(shim.path))).toBe(`711 ${ownOwner}`);
  });
});

describe.runIf(isRoot)('rights copied from the backend', () => {
  test.each([
    { socket: 0o660, folder: 0o711, uid: 0, gid: 0 },
    { socket: 0o660, folder: 0o710, uid: 0, gid: 1234 },
    { socket: 0o666, folder: 0o755, uid: 1000, gid: 1000 },
    { socket: 0o600, folder: 0o700, uid: 0, gid: 0 },
    { socket: 0o777, folder: 0o1777, uid: 0, gid: 0 },
  ])('the rights equal those of socket and folder of the backend: %o', async (wanted) => {
    await shim.startBackend(wanted);
    await shim.start();
    expect(rightsOf(shim.path)).toBe(rightsOf(shim.backendPath));
    expect(rightsOf(dirname(shim.path))).toBe(rightsOf(dirname(shim.backendPath)));
  });

  test('the rights are root only without a backend, and then follow each change of the backend', async () => {
    const listener = await shim.start();
    expect([rightsOf(shim.path), rightsOf(dirname(shim.path))]).toEqual(['600 0:0', '700 0:0']);
    await shim.startBackend({ socket: 0o660, folder: 0o711, gid: 1234 });
    listener.mirrorBackend();
    expect([rightsOf(shim.path), rightsOf(dirname(shim.path))]).toEqual(['660 0:1234', '711 0:1234']);
    shim.setBackend({ socket: 0o600, folder: 0o700 });
    listener.mirrorBackend();
    expect([rightsOf(shim.path), rightsOf(dirname(shim.path))]).toEqual(['600 0:0', '700 0:0']);
  });

  test('the rights follow a backend that starts later, without a connection', async () => {
    await shim.start();
    await shim.startBackend({ socket: 0o660, folder: 0o711 });
    await vi.waitFor(() => expect(rightsOf(shim.path)).toBe('660 0:0'), LONG_WAIT);
  });

  test('the rights are set on an existing folder that is empty', async () => {
    mkdirSync(dirname(shim.path), { mode: 0o755 });
    await shim.startBackend({ socket: 0o660, folder: 0o710, gid: 1234 });
    await shim.start();
    expect(rightsOf(dirname(shim.path))).toBe('710 0:1234');
  });

  test('an existing folder is accessible only to root while there is no backend', async () => {
    mkdirSync(dirname(shim.path), { mode: 0o755 });
    await shim.start();
    expect(rightsOf(dirname(shim.path))).toBe('700 0:0');
  });

  test('a folder with other files stays unchanged, and the socket has fewer rights if more users can reach it', async () => {
    chmodSync(shim.root, 0o755);
    mkdirSync(dirname(shim.path), { mode: 0o755 });
    writeFileSync(join(dirname(shim.path), 'other'), '');
    await shim.startBackend({ socket: 0o666, folder: 0o700 });
    const listener = await shim.start();
    expect(rightsOf(dirname(shim.path))).toBe('755 0:0');
    expect(rightsOf(shim.path)).toBe('600 0:0');
    shim.setBackend({ socket: 0o666, folder: 0o710, gid: 1234 });
    listener.mirrorBackend();
    expect(rightsOf(shim.path)).toBe('660 0:1234');
    shim.setBackend({ socket: 0o666, folder: 0o711, gid: 1234 });
    listener.mirrorBackend();
    expect(rightsOf(shim.path)).toBe('666 0:1234');
  });

  test('a folder that the backend uses too stays unchanged', async () => {
    shim.path = join(dirname(shim.backendPath), 'shim.sock');
    mkdirSync(dirname(shim.path), { mode: 0o755 });
    await shim.start();
    expect(rightsOf(dirname(shim.path))).toBe('755 0:0');
  });

  test('an empty world-writable folder stays unchanged', async () => {
    mkdirSync(dirname(shim.path));
    chmodSync(dirname(shim.path), 0o1777);
    await shim.start();
    expect(rightsOf(dirname(shim.path))).toBe('1777 0:0');
    expect(rightsOf(shim.path)).toBe('600 0:0');
  });

  test('the rights follow the backend through a symbolic link', async () => {
    await shim.startBackend({ socket: 0o660, folder: 0o711, gid: 1234 });
    symlinkSync(shim.backendPath, join(shim.root, 'link.sock'));
    shim.backendPath = join(shim.root, 'link.sock');
    await shim.start();
    expect(rightsOf(shim.path)).toBe('660 0:1234');
    shim.backendPath = join(shim.root, 'containerd/containerd.sock');
  });

  test('the rights are never wider than those of the backend while the socket is created', async () => {
    await shim.startBackend({ socket: 0o620, folder: 0o710, gid: 1234 });
    const seen = await pollRights(['socket 620 0 1234'], async (isComplete) => {
      for (let cycle = 0; cycle < 150 || !isComplete(); cycle += 1) {
        rmSync(dirname(shim.path), { recursive: true, force: true });
        if (cycle % 2 === 0) mkdirSync(dirname(shim.path), { mode: 0o700 });
        const listener = await listen({
          path: shim.path,
          rights: { like: shim.backendPath },
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

  test('the rights during a change of the backend are never wider than before or after it', async () => {
    await shim.startBackend({ socket: 0o660, folder: 0o710, gid: 1234 });
    const listener = await shim.start();
    const seen = await pollRights(['socket 660 0 1234', 'socket 600 0 5678'], async (isComplete) => {
      for (let cycle = 0; cycle < 1000 || !isComplete(); cycle += 1) {
        shim.setBackend({ socket: 0o600, folder: 0o700, gid: 5678 });
        listener.mirrorBackend();
        shim.setBackend({ socket: 0o660, folder: 0o710, gid: 1234 });
        listener.mirrorBackend();
        await new Promise(setImmediate);
      }
    });
    // Group 5678 never has access.
    expect(seen.filter((what) => / 5678$/.test(what) && !/ [67]00 /.test(what))).toEqual([]);
  });
});

/**
 * Polls the shim's folder and the sockets in it from another process during `run`. Returns each combination of kind,
 * mode, user and group that it has seen twice in a row: the kernel reads mode and group one after the other, so that a
 * stat that is interrupted between has the mode from before a change and the group from after it. `isComplete` returns
 * whether all `expected` combinations have been seen: on a busy machine the process may not poll for a while.
 */
async function pollRights(
  expected: readonly string[],
  run: (isComplete: () => boolean) => Promise<void>,
): Promise<readonly string[]> {
  const watcherFile = join(shim.root, 'watcher.mjs');
  writeFileSync(
    watcherFile,
    `import { lstatSync, readdirSync } from 'node:fs';
    const folder = ${JSON.stringify(dirname(shim.path))};
    const seen = new Set();
    const rights = (file) => {
      const { mode, uid, gid } = lstatSync(file);
      return [(mode & 0o7777).toString(8), uid, gid].join(' ');
    };
    const look = (file, kind) => {
      try {
        const found = rights(file);
        const what = kind + ' ' + found;
        if (seen.has(what) || rights(file) !== found) return;
        process.send(what);
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
    await run(() => expected.every((what) => seen.includes(what)));
  } finally {
    process.umask(before);
    watcher.send('stop');
  }
  await stopped;
  return seen;
}
