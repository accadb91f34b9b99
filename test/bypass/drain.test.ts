import type { ChildProcess } from 'node:child_process';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import type { ClientHttp2Session, Http2Server } from 'node:http2';
import { connect, createServer } from 'node:http2';
import { createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { loadProcessCalls } from '../../src/bypass/calls.ts';
import { descriptorsOf, drain } from '../../src/bypass/drain.ts';
import { LONG_WAIT } from '../support/long-wait.ts';

describe('drain of a proxy', () => {
  // A proxy in a separate process that copies bytes. It closes both connections when one ends, as systemd-socket-proxyd
  // does. test/e2e/systemd/bypass.test.ts uses the proxy of systemd.
  const PROXY = `
const { createConnection, createServer } = require('node:net');
const [, listen, backend] = process.argv;
createServer((client) => {
  const server = createConnection(backend);
  client.pipe(server).pipe(client);
  for (const [one, other] of [[client, server], [server, client]])
    one.on('error', () => undefined).on('close', () => other.destroy());
}).listen(listen, () => process.send('listening'));
// The parent process may have been killed.
process.on('disconnect', () => process.exit());
`;

  /** An HTTP/2 server in a separate process, which a test can stop. */
  const BACKEND = `
require('node:http2').createServer().listen(process.argv[1], () => process.send('listening'));
`;
  /** A client's connection preface, with empty SETTINGS. */
  const PREFACE = Buffer.concat([
    Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
    Buffer.from('000000040000000000', 'hex'),
  ]);

  /** The types of the frames in these bytes (RFC 9113 4.1). */
  function typesOf(bytes: Buffer): number[] {
    const types: number[] = [];
    for (let at = 0; at + 9 <= bytes.length; at += 9 + bytes.readUIntBE(at, 3)) types.push(bytes[at + 3] ?? 0);
    return types;
  }

  let folder: string;
  let proxy: ChildProcess;
  let server: Http2Server;
  let session: ClientHttp2Session;
  /** Ends the calls that the server has started to answer. */
  let answer: () => void;
  const lines: string[] = [];
  /** The descriptors of the proxy before its first client. One of libuv's pipes always has a byte in it. */
  let own: readonly number[];

  const listen = (name = 'listen.sock'): string => join(folder, name);
  /** Called for each line that the takeover prints. */
  let onLine: () => void;

  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'drain-'));
    lines.length = 0;
    onLine = () => undefined;
    const backend = join(folder, 'backend.sock');
    server = createServer();
    const answered = new Promise<void>((resolve) => (answer = resolve));
    server.on('stream', (stream, headers) => {
      // A proxy that is killed with bytes unread resets the connection.
      stream.on('error', () => undefined);
      stream.respond({ ':status': 200 });
      if (headers[':path'] === '/slow') void answered.then(() => stream.end('done'));
      else stream.end('done');
    });
    server.listen(backend);
    await once(server, 'listening');
    proxy = await startProxy(listen(), backend);
    own = readdirSync(`/proc/${proxy.pid}/fd`).map(Number);
    session = connect('http://localhost', { createConnection: () => createConnection(listen()) });
  });

  afterEach(() => {
    session.destroy();
    server.close();
    proxy.kill('SIGKILL');
    rmSync(folder, { recursive: true });
  });

  async function startProxy(from: string, to: string): Promise<ChildProcess> {
    const child = spawn(process.execPath, ['-e', PROXY, from, to], { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
    await once(child, 'message');
    return child;
  }

  async function call(path: string): Promise<string> {
    const stream = session.request({ ':path': path });
    let text = '';
    for await (const chunk of stream.setEncoding('utf8')) text += chunk as string;
    return text;
  }

  const drained = (isReplaced: () => boolean = () => true, timeoutMs = 600_000, signal?: AbortSignal) =>
    drain(
      { procRoot: '/proc', pid: proxy.pid ?? 0, listen: listen(), ignored: own },
      { ...options(timeoutMs), ...(signal && { signal }), isReplaced: () => Promise.resolve(isReplaced()) },
    );

  const options = (timeoutMs = 600_000) => ({
    timeoutMs,
    isReplaced: () => Promise.resolve(true),
    say(line: string): void {
      lines.push(line);
      onLine();
    },
  });

  /** The soft limit of the proxy's descriptors. */
  const limit = (): string | undefined =>
    /^Max open files\s+(\d+)/m.exec(readFileSync(`/proc/${proxy.pid}/limits`, 'utf8'))?.[1];

  test('upgrade: no call is lost when the shim is back: a client gets a GOAWAY, and its connection ends after its running call', async () => {
    expect(await call('/quick')).toBe('done');
    const slow = call('/slow');
    const goaway = once(session, 'goaway');
    const result = drained();
    expect(await goaway).toEqual([0, 2 ** 31 - 1, undefined]);
    expect(session.destroyed).toBe(false);
    expect(limit()).toBe('0');
    answer();
    expect(await slow).toBe('done');
    expect(await result).toBe('drained');
    expect(lines).toContain('1 connections have calls that run');
  });

  test('a client gets SETTINGS before GOAWAY if the backend has not accepted its connection yet', async () => {
    const backend = spawn(process.execPath, ['-e', BACKEND, join(folder, 'stopped.sock')], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    await once(backend, 'message');
    const stopped = await startProxy(listen('other.sock'), join(folder, 'stopped.sock'));
    const ignored = readdirSync(`/proc/${stopped.pid}/fd`).map(Number);
    backend.kill('SIGSTOP');
    try {
      // Reads bytes: a client of Node's would end its connection at once.
      const client = createConnection(listen('other.sock'));
      const bytes: Buffer[] = [];
      client.on('data', (chunk) => bytes.push(chunk));
      client.write(PREFACE);
      // Descriptors that the proxy has not accepted: nothing but the proxy accepts connections.
      const unaccepted = (): unknown => descriptorsOf('/proc', stopped.pid ?? 0, listen('other.sock')).unaccepted;
      await expect.poll(unaccepted, LONG_WAIT).toContain(join(folder, 'stopped.sock'));
      const waiting = new Promise<void>((resolve) => (onLine = resolve));
      const result = drain(
        { procRoot: '/proc', pid: stopped.pid ?? 0, listen: listen('other.sock'), ignored },
        options(),
      );
      await waiting;
      expect(lines).toEqual(['waiting for the runtime to accept its connections']);
      backend.kill('SIGCONT');
      await expect.poll(() => typesOf(Buffer.concat(bytes)), LONG_WAIT).toContain(7);
      expect(typesOf(Buffer.concat(bytes))[0]).toBe(4);
      client.destroy();
      expect(await result).toBe('drained');
    } finally {
      backend.kill('SIGKILL');
      stopped.kill('SIGKILL');
    }
  });

  test('a proxy that is not replaced after the GOAWAY continues and accepts clients again', async () => {
    expect(await call('/quick')).toBe('done');
    const before = limit();
    const slow = call('/slow');
    let replaced = true;
    session.once('goaway', () => (replaced = false));
    expect(await drained(() => replaced)).toBe('not replaced');
    expect(limit()).toBe(before);
    answer();
    expect(await slow).toBe('done');
  });

  test('a proxy that a killed drain has stopped accepts clients again if it is not replaced', async () => {
    const calls = await loadProcessCalls();
    expect(await call('/quick')).toBe('done');
    const before = limit();
    calls.limitDescriptors(proxy.pid ?? 0, 0n);
    process.kill(proxy.pid ?? 0, 'SIGSTOP');
    expect(await drained(() => false)).toBe('not replaced');
    expect(Number(limit())).toBeGreaterThanOrEqual(Number(before));
    const other = connect('http://localhost', { createConnection: () => createConnection(listen()) });
    await once(other, 'remoteSettings');
    other.destroy();
  });

  test('reports a timeout if calls run for too long', async () => {
    expect(await call('/quick')).toBe('done');
    void call('/slow').catch(() => undefined);
    expect(await drained(() => true, 500)).toBe('timed out');
  });

  test('a change of the system time does not end the wait for running calls', async () => {
    expect(await call('/quick')).toBe('done');
    const slow = call('/slow');
    const goaway = once(session, 'goaway');
    vi.useFakeTimers({ toFake: ['Date'] });
    try {
      let looks = 0;
      const result = drained(() => ++looks > 0);
      await goaway;
      vi.setSystemTime(Date.now() + 86_400_000);
      const before = looks;
      await expect.poll(() => looks, LONG_WAIT).toBeGreaterThan(before);
      answer();
      expect(await slow).toBe('done');
      expect(await result).toBe('drained');
    } finally {
      vi.useRealTimers();
    }
  });

  test.each([
    ['not replaced', false, (before: string | undefined) => before],
    ['timed out', true, () => '0'],
  ])('a takeover that is stopped ends at once with the result "%s"', async (result, isReplaced, expected) => {
    expect(await call('/quick')).toBe('done');
    const before = limit();
    const slow = call('/slow');
    const ending = new AbortController();
    session.once('goaway', () => ending.abort());
    expect(await drained(() => isReplaced || !ending.signal.aborted, 3_600_000, ending.signal)).toBe(result);
    expect(limit()).toBe(expected(before));
    answer();
    expect(await slow).toBe('done');
  });

  test.each([
    ['the other process serves', () => Promise.resolve(true)],
    ['the state of the other process is unknown', () => Promise.reject(new Error('systemctl: SIGINT'))],
  ])('a takeover that its user interrupts ends at once, and the proxy continues: %s', async (_, isReplaced) => {
    expect(await call('/quick')).toBe('done');
    const before = limit();
    const slow = call('/slow');
    const interrupt = new AbortController();
    let isTold = false;
    session.once('goaway', () => (isTold = true));
    const look = (): Promise<boolean> => {
      if (isTold) interrupt.abort();
      return isTold ? isReplaced() : Promise.resolve(true);
    };
    const takenOver = { procRoot: '/proc', pid: proxy.pid ?? 0, listen: listen(), ignored: own };
    expect(await drain(takenOver, { ...options(3_600_000), interrupt: interrupt.signal, isReplaced: look })).toBe(
      'interrupted',
    );
    expect(limit()).toBe(before);
    answer();
    expect(await slow).toBe('done');
  });

  test('counts the clients of a proxy as drained when the proxy ends', async () => {
    expect(await call('/quick')).toBe('done');
    void call('/slow').catch(() => undefined);
    session.once('goaway', () => proxy.kill('SIGKILL'));
    session.on('error', () => undefined);
    expect(await drained()).toBe('drained');
  });
});

test('sorts the descriptors of a proxy into clients and backend connections', () => {
  const root = mkdtempSync(join(tmpdir(), 'proc-'));
  mkdirSync(join(root, '7/fd'), { recursive: true });
  mkdirSync(join(root, '7/net'));
  const table = [
    'Num       RefCount Protocol Flags    Type St Inode Path',
    '0000000000000000: 00000002 00000000 00010000 0001 01 100 /run/s.sock',
    '0000000000000000: 00000003 00000000 00000000 0001 03 101 /run/s.sock',
    '0000000000000000: 00000003 00000000 00000000 0001 03 102',
    '0000000000000000: 00000003 00000000 00000000 0001 03 103 /run/other.sock',
    '0000000000000000: 00000003 00000000 00000000 0001 02     0 /run/backend.sock',
    '0000000000000000: 00000003 00000000 00000000 0001 02     0 /run/backend.sock',
  ];
  writeFileSync(join(root, '7/net/unix'), `${table.join('\n')}\n`);
  const links = ['/dev/null', 'socket:[999]', 'socket:[103]', 'socket:[100]', 'socket:[101]', 'socket:[102]'];
  for (const [descriptor, target] of [...links, 'pipe:[5]', 'anon_inode:[eventpoll]'].entries())
    symlinkSync(target, join(root, '7/fd', String(descriptor)));
  expect(descriptorsOf(root, 7, '/run/s.sock')).toEqual({
    clients: [4],
    fromBackend: [2, 5, 6],
    backends: [2, 5],
    unaccepted: new Set(['/run/backend.sock']),
  });
  rmSync(root, { recursive: true });
});
