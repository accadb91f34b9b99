import { once } from 'node:events';
import { lstatSync, statSync } from 'node:fs';
import { createConnection } from 'node:net';
import { join } from 'node:path';
import { status } from '@grpc/grpc-js';
import { describe, expect, test } from 'vitest';
import { FakeSystemd } from '../support/daemon/fake-systemd.ts';
import { TestDaemon } from '../support/daemon/test-daemon.ts';
import { type NamedDescriptor, passOn } from '../support/daemon/held-socket.ts';

const daemon = new TestDaemon();
const systemd = new FakeSystemd(daemon);

const rightsOf = (path: string) => {
  const { mode, uid, gid, ino, ctimeMs } = statSync(path);
  return { mode, uid, gid, ino, ctimeMs };
};

describe('sockets from systemd', () => {
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
