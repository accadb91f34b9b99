import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { describe, expect, test } from 'vitest';
import { FakeSystemd } from '../../support/daemon/fake-systemd.ts';
import { type NamedDescriptor, SocketType } from '../../support/daemon/held-socket.ts';
import { TestDaemon } from '../../support/daemon/test-daemon.ts';

const daemon = new TestDaemon();
const systemd = new FakeSystemd(daemon);

describe('invalid sockets from systemd', () => {
  const rejected = async (sockets: readonly NamedDescriptor[], env: NodeJS.ProcessEnv = {}): Promise<string> => {
    const program = systemd.start(sockets, env);
    expect(await program.exited).toEqual({ code: 1, signal: null });
    return program.stderr;
  };

  test('exits with code 1 if systemd passes a socket with an unknown name', async () => {
    expect(await rejected([['http', systemd.hold(systemd.cri)]])).toBe(
      'cri-resize-shim: LISTEN_FDNAMES: "http" is not known; FileDescriptorName= of a socket unit is one of cri, resize\n',
    );
  });

  test('exits with code 1 if systemd passes two sockets with one name', async () => {
    const sockets: NamedDescriptor[] = [
      ['cri', systemd.hold(systemd.cri)],
      ['cri', systemd.hold(systemd.resize)],
    ];
    expect(await rejected(sockets)).toBe(
      'cri-resize-shim: LISTEN_FDNAMES: two sockets are named cri; give each a FileDescriptorName= of its own\n',
    );
  });

  test('exits with code 1 if systemd passes more sockets than names', async () => {
    expect(await rejected([['cri', systemd.hold(systemd.cri)]], { LISTEN_FDS: '2' })).toBe(
      'cri-resize-shim: LISTEN_FDS is 2, and LISTEN_FDNAMES has 1 names; give each socket unit a FileDescriptorName=\n',
    );
  });

  test('exits with code 1 if LISTEN_FDS is not a number', async () => {
    expect(await rejected([], { LISTEN_FDS: 'two' })).toBe(
      'cri-resize-shim: LISTEN_FDS is "two", which is not a number\n',
    );
  });

  const unusable = (what: string): string =>
    `cri-resize-shim: the socket cri that systemd has passed (descriptor 3) ${what}; its unit has to have ListenStream= with an absolute path\n`;

  test.each([
    ['a datagram socket', { type: SocketType.datagram, listens: false }, 'is no stream socket'],
    ['a seqpacket socket', { type: SocketType.seqpacket }, 'is no stream socket'],
    ['a socket that does not listen', { listens: false }, 'does not listen'],
  ])('exits with code 1 if systemd passes %s', async (_, options, what) => {
    expect(await rejected([['cri', systemd.hold(systemd.cri, options)]])).toBe(unusable(what));
  });

  test('exits with code 1 if systemd passes the descriptor of a file', async () => {
    const descriptor = openSync(daemon.file, 'r');
    daemon.cleanUp(() => closeSync(descriptor));
    expect(await rejected([['cri', descriptor]])).toBe(unusable('is no socket'));
  });

  test('exits with code 1 if systemd passes a TCP socket', async () => {
    const server: Server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    daemon.cleanUp(() => server.close());
    expect(await rejected([['cri', descriptorOf(server)]])).toBe(unusable('is no unix socket'));
  });
});

/** Node has no public API for the descriptor of a server. */
const descriptorOf = (server: Server): number => (server as unknown as { _handle: { fd: number } })._handle.fd;
