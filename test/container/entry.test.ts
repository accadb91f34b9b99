import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { type ClientHttp2Session, connect } from 'node:http2';
import { createConnection, createServer as createPlainServer, type Socket } from 'node:net';
import { join, resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { execa } from 'execa';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { AT_ONCE, EntryPoint, LONG, PATIENT } from '../support/daemon/entry-point.ts';
import { highsIn, leaveHighs, restoredHighs } from '../support/resize/left-highs.ts';

// The entry point of the image with a shim that only answers with its name. test/e2e/install/image.test.ts runs the
// real one.

let entry: EntryPoint;
const sessions = new Set<ClientHttp2Session>();

const at = (name: string): string => entry.at(name);

beforeEach(async () => {
  entry = new EntryPoint();
  await entry.serve();
});
afterEach(async () => {
  entry.answer();
  for (const session of sessions) session.destroy();
  sessions.clear();
  await entry.remove();
});

/**
 * A client that handles GOAWAY like a gRPC client: its next call opens another connection, and so does a call that
 * crossed the GOAWAY (RFC 9113 8.7).
 */
class Client {
  #session: ClientHttp2Session | undefined;
  connections = 0;

  async call(path = '/'): Promise<string> {
    const session = (this.#session ??= this.#connect());
    try {
      return await this.#callOn(session, path);
    } catch (error) {
      const isUnsent = error instanceof Error && error.message.includes('NGHTTP2_REFUSED_STREAM');
      if (!isUnsent || this.#session === session) throw error;
      return this.call(path);
    }
  }

  async #callOn(session: ClientHttp2Session, path: string): Promise<string> {
    const stream = session.request({ ':path': path });
    let text = '';
    for await (const chunk of stream.setEncoding('utf8')) text += chunk as string;
    return text;
  }

  #connect(): ClientHttp2Session {
    this.connections += 1;
    const session = connect('http://localhost', { createConnection: () => createConnection(entry.listen) });
    sessions.add(session);
    session.on('error', () => undefined);
    session.on('goaway', () => {
      this.#session = undefined;
      session.close();
    });
    return session;
  }
}

const call = (path?: string): Promise<string> => new Client().call(path);
const state = (): string => readFileSync(at('run/.cri.sock.bypass'), 'utf8');

test('a shim that serves gets all clients, on a socket with the mode of the containerd socket, until it is stopped', async () => {
  entry.mode('serve 7');
  entry.run([], { constants: PATIENT });
  await entry.listens();
  expect(await call()).toBe('shim');
  await expect.poll(() => statSync(entry.listen).mode & 0o777, LONG).toBe(0o640);
  expect(statSync(at('run')).mode).toBe(statSync(at('backend')).mode);
  entry.process!.kill('SIGTERM');
  // The exit code is that of the shim.
  expect(await once(entry.process!, 'close')).toEqual([7, null]);
  expect(existsSync(entry.listen)).toBe(false);
  expect(entry.output).toBe('');
});

describe.each([
  ['crashes at its start', () => entry.mode('crash')],
  ['hangs at its start', () => entry.mode('hang')],
  ['has no Node', () => rmSync(at('bin/node'))],
  ['has a broken Node', () => writeFileSync(at('bin/node'), '\x7fELF broken')],
])('a shim that %s', (_title, fail) => {
  // entry.speed.test.ts measures the time.
  test('the bypass serves the clients of a failing shim, including a client that waits', async () => {
    entry.mode('serve');
    fail();
    entry.run();
    await entry.listens();
    expect(await call()).toBe('containerd');
    // The response is longer than a read and a window.
    expect(await call('/1000000')).toHaveLength(1_000_010);
    expect(state()).toMatch(
      /^ActiveState=active\nActiveEnterTimestampMonotonic=@\d+\nInactiveEnterTimestampMonotonic=0\n$/,
    );
  });
});

test('upgrade: in a container, a shim that is back takes over without a lost call, and running calls are answered', async () => {
  entry.mode('crash');
  entry.run([], { constants: { ...PATIENT, ...AT_ONCE } });
  await entry.listens();
  const [busy, waiting, idle] = [new Client(), new Client(), new Client()];
  expect(await Promise.all([busy, waiting, idle].map((client) => client.call()))).toEqual(Array(3).fill('containerd'));
  const slow = waiting.call('/slow');
  const answers: string[] = [];
  const next = async (): Promise<unknown> => answers.push((await busy.call('/70000')).slice(-10));
  await next();
  entry.mode('serve');
  while (answers.at(-1) !== 'shim') {
    await next();
    await delay(5);
  }
  expect(new Set(answers)).toEqual(new Set(['containerd', 'shim']));
  expect(busy.connections).toBe(2);
  expect(await idle.call()).toBe('shim');
  expect(state()).toContain('ActiveState=active');
  entry.answer();
  expect(await slow).toBe('slow');
  await entry.says('all clients of the bypass have moved to the shim');
  await entry.states(
    /^ActiveState=inactive\nActiveEnterTimestampMonotonic=@\d+\nInactiveEnterTimestampMonotonic=@\d+\n$/,
  );
});

test('the bypass sends a GOAWAY only after whole frames and complete header blocks', async () => {
  const bytes = (text: string): Buffer => Buffer.from(text.replaceAll(' ', ''), 'hex');
  // RFC 9113, section 4.1: length, type, flags, stream. Settings, and the beginning of headers without END_HEADERS.
  const first = bytes('000000 04 00 00000000  000004 01 00 00000001 8888');
  // The end of the headers, a CONTINUATION with END_HEADERS, and data.
  const [second, third] = [bytes('8888 000001 09 04 00000001 88'), bytes('000002 00 01 00000001 4141')];
  let connection: Socket | undefined;
  const raw = createPlainServer((socket) => (connection = socket).write(first)).listen(at('raw'));
  entry.mode('crash');
  entry.run(['--listen', entry.listen, '--container-runtime-endpoint', at('raw')], {
    constants: { ...PATIENT, ...AT_ONCE },
  });
  await entry.listens();
  const client = createConnection(entry.listen).on('error', () => undefined);
  let received = Buffer.alloc(0);
  client.on('data', (chunk) => (received = Buffer.concat([received, chunk])));
  await expect.poll(() => received.toString('hex'), LONG).toBe(first.toString('hex'));
  entry.mode('serve');
  await entry.says('clients of the bypass move to it');
  connection!.write(Buffer.concat([second, third]));
  const goaway = bytes('000008 07 00 00000000 7fffffff 00000000');
  const all = Buffer.concat([first, second, goaway, third]).toString('hex');
  await expect.poll(() => received.toString('hex'), LONG).toBe(all);
  client.destroy();
  raw.close();
});

test('a killed shim is started again after a second, and after three short lives the bypass serves at once', async () => {
  entry.mode('serve');
  entry.run([], { constants: { ...PATIENT, PAUSE: 300 } });
  await entry.listens();
  for (const failure of [1, 2, 3]) {
    expect(await call()).toBe('shim');
    const { stdout } = await execa('pgrep', ['-P', String(entry.process!.pid)]);
    process.kill(Number(stdout), 'SIGKILL');
    await expect.poll(() => entry.output.match(/has ended \(signal 9\)/g)?.length, LONG).toBe(failure);
  }
  expect(entry.output.match(/again in \d+ s/g)).toEqual(['again in 1 s', 'again in 1 s', 'again in 300 s']);
  expect(await call()).toBe('containerd');
});

test('KEP-1287: the entry point of the image restores the memory.high that a killed shim has lowered, and no other', async () => {
  entry.mode('crash');
  leaveHighs(entry.folder);
  const sockets = ['--listen', entry.listen, `--container-runtime-endpoint=unix://${at('backend/sock')}`];
  entry.run([...sockets, '--state-folder', at('state'), `--cgroup-root=${at('cgroup')}`]);
  await entry.listens();
  await entry.says('the shim has ended');
  expect(highsIn(entry.folder)).toEqual(restoredHighs);
});

test('upgrade: the pauses between starts of a failing shim double up to five minutes, while the bypass serves', async () => {
  entry.mode('crash');
  const since = performance.now();
  // The constants are a 500th of their usual values.
  entry.run([], { constants: { UNSERVED: 0, PAUSE: 5 / 500, MOST: 300 / 500 } });
  await entry.listens();
  const pauses = (): readonly number[] =>
    [...entry.output.matchAll(/again in ([\d.]+) s/g)].map(([, seconds]) => Math.round(Number(seconds) * 500));
  await expect.poll(() => pauses().length, LONG).toBeGreaterThanOrEqual(9);
  expect(pauses().slice(0, 9)).toEqual([5, 10, 20, 40, 80, 160, 300, 300, 300]);
  // The last pause has only started.
  expect(performance.now() - since).toBeGreaterThan((1000 * (315 + 2 * 300)) / 500);
  expect(await call()).toBe('containerd');
});

test('the entry point replaces the socket of a killed container, but not a socket that is served', async () => {
  entry.mode('serve');
  mkdirSync(at('run'));
  const other = createPlainServer().listen(entry.listen);
  await once(other, 'listening');
  entry.run();
  await once(entry.process!, 'exit');
  await entry.says(`another process listens on ${entry.listen}`);
  other.close();
  const stale = spawn('perl', [
    '-MSocket',
    '-e',
    'socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, pack_sockaddr_un($ARGV[0]))',
    entry.listen,
  ]);
  await once(stale, 'exit');
  expect(existsSync(entry.listen)).toBe(true);
  entry.run([], { constants: PATIENT });
  await expect.poll(() => call().catch(() => ''), LONG).toBe('shim');
});

test.each([
  ['listen: LISTEN\ncontainerRuntimeEndpoint: BACKEND\n'],
  [
    '# comment\nlogLevel: [\n"listen": "unix://LISTEN" # ours\ncontainerRuntimeEndpoint:   \'unix:BACKEND\'\nunknown: 1\n',
  ],
])('the entry point reads both sockets from a configuration file that may be invalid: %j', async (text) => {
  entry.mode('crash');
  writeFileSync(at('config.yaml'), text.replace('LISTEN', entry.listen).replace('BACKEND', at('backend/sock')));
  entry.run([`--config=${at('config.yaml')}`], { constants: AT_ONCE });
  await entry.listens();
  expect(await call()).toBe('containerd');
});

test('a flag that only prints something starts the shim without the bypass', async () => {
  entry.mode('serve');
  entry.run(['--version']);
  expect(await once(entry.process!, 'close')).toEqual([0, null]);
  expect(entry.output).toBe('1.2.3\n');
});

test('the entry point needs only modules of perl-base', async () => {
  const folders = (await execa('perl', ['-e', 'print join "\\n", grep { /perl-base/ } @INC'])).stdout.split('\n');
  const used = readFileSync('container/entry.pl', 'utf8').matchAll(/^use ([A-Z]\S+?)[; ]/gm);
  for (const [, name = ''] of used)
    expect(
      folders.some((one) => existsSync(join(resolve(one), `${name.replaceAll('::', '/')}.pm`))),
      name,
    ).toBe(true);
});
