import { once } from 'node:events';
import { closeSync, lstatSync, mkdirSync, mkdtempSync, openSync, rmSync, statSync, unlinkSync } from 'node:fs';
import { type Server, createConnection, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { status } from '@grpc/grpc-js';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { FakeBackend, RawClient } from '../support/fake-backend.ts';
import { Program, buildProgram } from '../support/daemon-program.ts';
import { HeldSocket, SocketType, passOn } from '../support/held-socket.ts';
import { NotifySocket } from '../support/notify-socket.ts';

let file: string;
let folder: string;
let backendPath: string;
let cri: string;
let resize: string;
const open: (() => unknown)[] = [];

beforeAll(async () => {
  file = await buildProgram();
}, 60_000);
afterAll(() => unlinkSync(file));

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'systemd-'));
  backendPath = join(folder, 'containerd.sock');
  mkdirSync(join(folder, 'run'), { mode: 0o711 });
  cri = join(folder, 'run/cri.sock');
  resize = join(folder, 'run/resize.sock');
});
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
  rmSync(folder, { recursive: true });
});

type Named = readonly (readonly [name: string, descriptor: number])[];

function start(sockets: Named, env: NodeJS.ProcessEnv = {}, ...args: string[]): Program {
  const flags = ['--listen', `${folder}/elsewhere/shim.sock`, '--container-runtime-endpoint', backendPath, ...args];
  const program = new Program(file, flags, { passedOn: passOn(sockets), env });
  open.push(async () => {
    program.kill('SIGKILL');
    await program.exited;
  });
  return program;
}

function hold(path: string, options: ConstructorParameters<typeof HeldSocket>[1] = {}): HeldSocket {
  const socket = new HeldSocket(path, options);
  open.push(() => socket.close());
  return socket;
}

async function startBackend(): Promise<void> {
  const backend = await FakeBackend.listen(backendPath);
  open.push(() => backend.close());
}

function connect(path: string): RawClient {
  const client = new RawClient(path);
  open.push(() => client.close());
  return client;
}

const rightsOf = (path: string) => {
  const { mode, uid, gid, ino, ctimeMs } = statSync(path);
  return { mode, uid, gid, ino, ctimeMs };
};

describe('sockets that systemd has passed', () => {
  test('are served as they are: neither their rights nor their folder change, and they stay when the shim goes', async () => {
    await startBackend();
    const sockets = [hold(cri), hold(resize)] as const;
    const before = [cri, resize, join(folder, 'run')].map(rightsOf);
    const program = start([
      ['cri', sockets[0].descriptor],
      ['resize', sockets[1].descriptor],
    ]);
    expect(await program.logged('serving')).toMatchObject({ listen: cri, passed: ['cri', 'resize'] });
    expect(await connect(cri).call('/s/Echo', 'hello')).toBe('hello');
    expect(await connect(resize).code('/no.Service/Call')).toBe(status.UNIMPLEMENTED);
    program.kill('SIGTERM');
    expect(await program.exited).toMatchObject({ code: 0 });
    expect([cri, resize, join(folder, 'run')].map(rightsOf)).toEqual(before);
  });

  test('keep who calls while no shim is there: the next one answers', async () => {
    await startBackend();
    const { descriptor } = hold(cri);
    const first = start([['cri', descriptor]]);
    await first.logged('serving');
    first.kill('SIGTERM');
    await first.exited;
    const waiting = connect(cri).call('/s/Echo', 'patience');
    const second = start([['cri', descriptor]]);
    expect(await waiting).toBe('patience');
    expect(second.log.map(({ msg }) => msg)).toContain('serving');
  });

  test('of the resize API: who connects is sent away where resizes are off, not left waiting', async () => {
    await startBackend();
    const sockets: Named = [
      ['cri', hold(cri).descriptor],
      ['resize', hold(resize).descriptor],
    ];
    const program = start(sockets, {}, '--intercept=false');
    await program.logged('serving');
    const connection = createConnection(resize);
    await once(connection, 'close');
    expect(connection.bytesRead).toBe(0);
  });

  test('that were meant for another process are not taken', async () => {
    await startBackend();
    const { descriptor } = hold(cri);
    const program = new Program(
      file,
      ['--listen', `${folder}/own/cri.sock`, '--container-runtime-endpoint', backendPath],
      {
        passedOn: { ...passOn([['cri', descriptor]]), before: ['/bin/sh', '-c', 'LISTEN_PID=1 exec "$@"', 'sh'] },
      },
    );
    open.push(() => program.kill('SIGKILL'));
    expect(await program.logged('serving')).toMatchObject({ listen: `${folder}/own/cri.sock`, passed: [] });
    expect(lstatSync(`${folder}/own/cri.sock`).isSocket()).toBe(true);
  });
});

describe('what systemd has passed and cannot be used ends the start', () => {
  const refused = async (sockets: Named, env: NodeJS.ProcessEnv = {}): Promise<string> => {
    const program = start(sockets, env);
    expect(await program.exited).toEqual({ code: 1, signal: null });
    return program.stderr;
  };

  test('an unknown name', async () => {
    expect(await refused([['http', hold(cri).descriptor]])).toBe(
      'cri-resize-shim: LISTEN_FDNAMES: "http" is not known; FileDescriptorName= of a socket unit is one of cri, resize\n',
    );
  });

  test('one name twice', async () => {
    const sockets: Named = [
      ['cri', hold(cri).descriptor],
      ['cri', hold(resize).descriptor],
    ];
    expect(await refused(sockets)).toBe(
      'cri-resize-shim: LISTEN_FDNAMES: two sockets are named cri; give each a FileDescriptorName= of its own\n',
    );
  });

  test('more sockets than names', async () => {
    expect(await refused([['cri', hold(cri).descriptor]], { LISTEN_FDS: '2' })).toBe(
      'cri-resize-shim: LISTEN_FDS is 2, and LISTEN_FDNAMES has 1 names; give each socket unit a FileDescriptorName=\n',
    );
  });

  test('a number that is none', async () => {
    expect(await refused([], { LISTEN_FDS: 'two' })).toBe('cri-resize-shim: LISTEN_FDS is "two", which is no number\n');
  });

  const wrong = (what: string): string =>
    `cri-resize-shim: the socket cri that systemd has passed (descriptor 3) ${what}; its unit has to have ListenStream= with an absolute path\n`;

  test.each([
    ['a datagram socket', { type: SocketType.datagram, listens: false }, 'is no stream socket'],
    ['a socket of packets', { type: SocketType.seqpacket }, 'is no stream socket'],
    ['a socket that does not listen', { listens: false }, 'does not listen'],
  ])('%s', async (_, options, what) => {
    expect(await refused([['cri', hold(cri, options).descriptor]])).toBe(wrong(what));
  });

  test('a file', async () => {
    const descriptor = openSync(file, 'r');
    open.push(() => closeSync(descriptor));
    expect(await refused([['cri', descriptor]])).toBe(wrong('is no socket'));
  });

  test('a TCP socket', async () => {
    const server: Server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    open.push(() => server.close());
    expect(await refused([['cri', descriptorOf(server)]])).toBe(wrong('is no unix socket'));
  });
});

/** Node does not tell in public. */
const descriptorOf = (server: Server): number => (server as unknown as { _handle: { fd: number } })._handle.fd;

describe('what systemd hears', () => {
  test('READY once calls are answered, a sign of life all the time, STOPPING with the time that running calls may take', async () => {
    await startBackend();
    const systemd = new NotifySocket(join(folder, 'notify.sock'));
    open.push(() => systemd.close());
    const { descriptor } = hold(cri);
    const env = { NOTIFY_SOCKET: systemd.name, WATCHDOG_USEC: '300000' };
    const program = start([['cri', descriptor]], env, '--shutdown-timeout', '90s');
    expect(await systemd.waitFor('READY=1')).toBe(`READY=1\nSTATUS=serving ${cri}`);
    expect(await connect(cri).call('/s/Echo', 'hello')).toBe('hello');
    await systemd.waitFor('WATCHDOG=1');
    program.kill('SIGTERM');
    expect(await systemd.waitFor('STOPPING=1')).toBe(
      'STOPPING=1\nEXTEND_TIMEOUT_USEC=105000000\nSTATUS=waiting for running calls',
    );
    expect(await program.exited).toEqual({ code: 0, signal: null });
  });
});
