import { once } from 'node:events';
import { existsSync, lstatSync, statSync } from 'node:fs';
import { createConnection } from 'node:net';
import { join } from 'node:path';
import { status } from '@grpc/grpc-js';
import { describe, expect, test } from 'vitest';
import { FakeSystemd } from '../support/daemon/fake-systemd.ts';
import type { NamedDescriptor } from '../support/daemon/held-socket.ts';
import { passOn } from '../support/daemon/held-socket.ts';
import { TestDaemon } from '../support/daemon/test-daemon.ts';

const daemon = new TestDaemon();
const isRoot = process.getuid?.() === 0;

describe('the CRI socket', () => {
  test('a second shim does not take the socket of a running one, and exits with code 1 and its process ID', async () => {
    await daemon.startBackend();
    const first = daemon.start();
    await first.logged('serving');
    const second = daemon.start();
    expect(await second.exited).toEqual({ code: 1, signal: null });
    expect(second.stderr).toBe(
      `cri-resize-shim: cannot listen on ${daemon.listen}: pid ${first.process.pid} (node) already listens there; stop it or use another path\n`,
    );
    expect(await daemon.connect().call('/s/Echo', 'x')).toBe('x');
  });

  test('one of several shims that start concurrently takes the socket of a killed shim', async () => {
    await daemon.startBackend();
    const killed = daemon.start();
    await killed.logged('serving');
    killed.kill('SIGKILL');
    await killed.exited;
    expect(existsSync(daemon.listen)).toBe(true);

    const programs = Array.from({ length: 4 }, () => daemon.start());
    const outcomes = await Promise.all(
      programs.map((program) =>
        Promise.race([program.exited.then(({ code }) => code), program.logged('serving').then(() => 'serving')]).catch(
          () => 1,
        ),
      ),
    );
    expect(outcomes.sort()).toEqual([1, 1, 1, 'serving']);
    expect(await daemon.connect().call('/s/Echo', 'x')).toBe('x');
  });

  test.runIf(isRoot)(
    'exits with code 1 and one line if it cannot create the CRI socket in a folder without write permission',
    async () => {
      const program = daemon.run({ uid: 65_534 }, '--listen', join(daemon.folder, 'x.sock'));
      expect(await program.exited).toEqual({ code: 1, signal: null });
      expect(program.stderr).toBe(
        `cri-resize-shim: cannot listen on ${daemon.folder}/x.sock: no permission to create a socket in ${daemon.folder}; run as root or use a path in a folder of your own\n`,
      );
    },
  );
});

describe('sockets from systemd', () => {
  const systemd = new FakeSystemd(daemon);

  const rightsOf = (path: string) => {
    const { mode, uid, gid, ino, ctimeMs } = statSync(path);
    return { mode, uid, gid, ino, ctimeMs };
  };

  test('upgrade: sockets from systemd keep their path, mode, owner and folder when the shim serves and stops', async () => {
    await daemon.startBackend();
    const sockets = [systemd.hold(systemd.cri), systemd.hold(systemd.resize)] as const;
    const before = [systemd.cri, systemd.resize, join(daemon.folder, 'run')].map(rightsOf);
    const program = systemd.start([
      ['cri', sockets[0]],
      ['resize', sockets[1]],
    ]);
    expect(await program.logged('serving')).toMatchObject({ listen: systemd.cri, passed: ['cri', 'resize'] });
    expect(await daemon.connect(systemd.cri).call('/s/Echo', 'hello')).toBe('hello');
    expect(await daemon.connect(systemd.resize).code('/no.Service/Call')).toBe(status.UNIMPLEMENTED);
    program.kill('SIGTERM');
    expect(await program.exited).toMatchObject({ code: 0 });
    expect([systemd.cri, systemd.resize, join(daemon.folder, 'run')].map(rightsOf)).toEqual(before);
  });

  test('a socket from systemd holds a call while no shim runs, until the next shim answers it', async () => {
    await daemon.startBackend();
    const descriptor = systemd.hold(systemd.cri);
    const first = systemd.start([['cri', descriptor]]);
    await first.logged('serving');
    first.kill('SIGTERM');
    await first.exited;
    const answer = daemon.connect(systemd.cri).call('/s/Echo', 'patience');
    const second = systemd.start([['cri', descriptor]]);
    expect(await answer).toBe('patience');
    expect(second.log.map(({ msg }) => msg)).toContain('serving');
  });

  test('a resize API socket from systemd closes each connection at once if resizes are disabled', async () => {
    await daemon.startBackend();
    const sockets: NamedDescriptor[] = [
      ['cri', systemd.hold(systemd.cri)],
      ['resize', systemd.hold(systemd.resize)],
    ];
    const program = systemd.start(sockets, {}, '--intercept=false');
    await program.logged('serving');
    const connection = createConnection(systemd.resize);
    await once(connection, 'close');
    expect(connection.bytesRead).toBe(0);
  });

  test('ignores sockets from systemd if LISTEN_PID names another process', async () => {
    await daemon.startBackend();
    const descriptor = systemd.hold(systemd.cri);
    const passedOn = { ...passOn([['cri', descriptor]]), before: ['/bin/sh', '-c', 'LISTEN_PID=1 exec "$@"', 'sh'] };
    const program = daemon.startWith({ passedOn });
    expect(await program.logged('serving')).toMatchObject({ listen: daemon.listen, passed: [] });
    expect(lstatSync(daemon.listen).isSocket()).toBe(true);
  });
});
