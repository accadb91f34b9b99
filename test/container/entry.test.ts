import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { type ClientHttp2Session, type Http2Server, connect, createServer } from 'node:http2';
import { type Socket, createConnection, createServer as createPlainServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { execa } from 'execa';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';

// The entry point of the image with a shim that only answers with its name. test/e2e/install/image.test.ts runs the real one.

/** A shim of few lines: serves its descriptor 3, or fails as the file `mode` says. Perl sends the notification. */
const SHIM = `
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http2';
if (process.argv.includes('--version')) { console.log('1.2.3'); process.exit(0); }
const mode = readFileSync(process.env.MODE, 'utf8');
if (mode === 'crash') process.abort();
if (mode === 'hang') setInterval(() => undefined, 1e9);
if (mode.startsWith('serve')) {
  const sessions = new Set();
  const server = createServer((_, response) => response.end('shim'));
  server.on('session', (session) => sessions.add(session));
  process.on('SIGTERM', () => process.exit(Number(mode.split(' ')[1] ?? 0)));
  server.listen({ fd: 3 }, () => execFileSync('perl', ['-MSocket', '-e',
    'socket(S, AF_UNIX, SOCK_DGRAM, 0); send(S, "READY=1", 0, pack_sockaddr_un($ARGV[0])) or die', process.env.NOTIFY_SOCKET]));
}
`;

let folder: string;
let backend: Http2Server;
let entry: ChildProcess | undefined;
let output: string;
/** Ends the calls of /slow. */
let answer: () => void;
const sessions = new Set<ClientHttp2Session>();

const at = (name: string): string => join(folder, name);
const LISTEN = 'run/cri.sock';

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'entry-'));
  for (const name of ['bin', 'program/container', 'program/dist', 'backend']) mkdirSync(at(name), { recursive: true });
  cpSync('container/entry.pl', at('program/container/entry.pl'));
  writeFileSync(at('program/dist/cri-resize-shim.js'), '');
  writeFileSync(at('shim.mjs'), SHIM);
  writeFileSync(at('bin/node'), `#!/bin/sh\nshift\nexec ${process.execPath} ${at('shim.mjs')} "$@"\n`);
  chmodSync(at('bin/node'), 0o755);
  backend = createServer();
  const answered = new Promise<void>((done) => (answer = done));
  backend.on('stream', (stream, headers) => {
    stream.respond({ ':status': 200 });
    if (headers[':path'] === '/slow') void answered.then(() => stream.end('slow'));
    else stream.end(`${'x'.repeat(Number(/^\/(\d+)/.exec(String(headers[':path']))?.[1] ?? 0))}containerd`);
  });
  backend.listen(at('backend/sock'));
  await once(backend, 'listening');
  chmodSync(at('backend/sock'), 0o640);
  [entry, output] = [undefined, ''];
});
afterEach(async () => {
  answer();
  for (const session of sessions) session.destroy();
  sessions.clear();
  if (entry !== undefined && entry.exitCode === null && entry.signalCode === null) {
    const ended = once(entry, 'exit');
    entry.kill('SIGTERM');
    entry.kill('SIGTERM');
    await ended;
  }
  backend.close();
  rmSync(folder, { recursive: true });
});

const mode = (text: string): void => writeFileSync(at('mode'), text);

function run(...flags: readonly string[]): void {
  const words =
    flags.length > 0 ? flags : ['--listen', at(LISTEN), `--container-runtime-endpoint=unix://${at('backend/sock')}`];
  const env = { ...process.env, PATH: `${at('bin')}:/usr/bin:/bin`, MODE: at('mode') };
  entry = spawn('perl', [at('program/container/entry.pl'), ...words], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  for (const stream of [entry.stdout!, entry.stderr!])
    stream.setEncoding('utf8').on('data', (text: string) => (output += text));
}

const LONG = { timeout: 20_000, interval: 20 };
const says = (text: string): Promise<void> => expect.poll(() => output, LONG).toContain(text);
const listens = (): Promise<void> => expect.poll(() => existsSync(at(LISTEN)), LONG).toBe(true);

/**
 * A gRPC client in this respect: after a GOAWAY its next call opens another connection, and so does one that the GOAWAY has overtaken
 * before it was sent (RFC 9113 8.7).
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
    const session = connect('http://localhost', { createConnection: () => createConnection(at(LISTEN)) });
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

test('a shim that serves gets all clients, on a socket with the rights of containerd’s, until it is stopped', async () => {
  mode('serve 7');
  run();
  await listens();
  expect(await call()).toBe('shim');
  await expect.poll(() => statSync(at(LISTEN)).mode & 0o777, LONG).toBe(0o640);
  expect(statSync(at('run')).mode).toBe(statSync(at('backend')).mode);
  entry!.kill('SIGTERM');
  // The exit code is that of the shim.
  expect(await once(entry!, 'exit')).toEqual([7, null]);
  expect(existsSync(at(LISTEN))).toBe(false);
  expect(output).toBe('');
});

describe.each([
  ['crashes at its start', () => mode('crash')],
  ['hangs at its start', () => mode('hang')],
  ['has no Node', () => rmSync(at('bin/node'))],
  ['has a broken Node', () => writeFileSync(at('bin/node'), '\x7fELF broken')],
])('a shim that %s', (_title, fail) => {
  test('is bypassed within 10 s, for a client that has waited, too', async () => {
    mode('serve');
    fail();
    const since = Date.now();
    run();
    await listens();
    expect(await call()).toBe('containerd');
    expect(Date.now() - since).toBeLessThan(10_000);
    // Longer than a read and a window.
    expect(await call('/1000000')).toHaveLength(1_000_010);
    expect(state()).toMatch(
      /^ActiveState=active\nActiveEnterTimestampMonotonic=@\d+\nInactiveEnterTimestampMonotonic=0\n$/,
    );
  });
});

test('a shim that is back takes over without a lost call, and a call that runs is answered', async () => {
  mode('crash');
  run();
  await listens();
  const [busy, waiting, idle] = [new Client(), new Client(), new Client()];
  expect(await Promise.all([busy, waiting, idle].map((client) => client.call()))).toEqual(Array(3).fill('containerd'));
  const slow = waiting.call('/slow');
  mode('serve');
  const answers: string[] = [];
  while (answers.at(-1) !== 'shim') {
    answers.push(await busy.call('/70000').then((text) => text.slice(-10)));
    await delay(5);
  }
  expect(new Set(answers)).toEqual(new Set(['containerd', 'shim']));
  expect(busy.connections).toBe(2);
  expect(await idle.call()).toBe('shim');
  expect(state()).toContain('ActiveState=active');
  answer();
  expect(await slow).toBe('slow');
  await says('all clients of the bypass have moved to the shim');
  expect(state()).toMatch(
    /^ActiveState=inactive\nActiveEnterTimestampMonotonic=@\d+\nInactiveEnterTimestampMonotonic=@\d+\n$/,
  );
});

test('a GOAWAY comes after whole frames, and after the last one of a header block', async () => {
  const bytes = (text: string): Buffer => Buffer.from(text.replaceAll(' ', ''), 'hex');
  // RFC 9113, section 4.1: length, type, flags, stream. Settings, and the beginning of headers without END_HEADERS.
  const first = bytes('000000 04 00 00000000  000004 01 00 00000001 8888');
  // Their end, a CONTINUATION with END_HEADERS, and data.
  const [second, third] = [bytes('8888 000001 09 04 00000001 88'), bytes('000002 00 01 00000001 4141')];
  let connection: Socket | undefined;
  const raw = createPlainServer((socket) => (connection = socket).write(first)).listen(at('raw'));
  mode('crash');
  run('--listen', at(LISTEN), '--container-runtime-endpoint', at('raw'));
  await listens();
  const client = createConnection(at(LISTEN)).on('error', () => undefined);
  let received = Buffer.alloc(0);
  client.on('data', (chunk) => (received = Buffer.concat([received, chunk])));
  await expect.poll(() => received.toString('hex'), LONG).toBe(first.toString('hex'));
  mode('serve');
  await says('clients of the bypass move to it');
  connection!.write(Buffer.concat([second, third]));
  const goaway = bytes('000008 07 00 00000000 7fffffff 00000000');
  const all = Buffer.concat([first, second, goaway, third]).toString('hex');
  await expect.poll(() => received.toString('hex'), LONG).toBe(all);
  client.destroy();
  raw.close();
});

test('a shim that is killed is back after a second, and after three short lives the bypass serves at once', async () => {
  mode('serve');
  run();
  await listens();
  for (const failure of [1, 2, 3]) {
    expect(await call()).toBe('shim');
    const { stdout } = await execa('pgrep', ['-P', String(entry!.pid)]);
    process.kill(Number(stdout), 'SIGKILL');
    await expect.poll(() => output.match(/has ended \(signal 9\)/g)?.length, LONG).toBe(failure);
  }
  expect(output.match(/again in \d+ s/g)).toEqual(['again in 1 s', 'again in 1 s', 'again in 5 s']);
  expect(await call()).toBe('containerd');
});

test('a socket of a killed container is replaced, and one that is served is not', async () => {
  mode('serve');
  mkdirSync(at('run'));
  const other = createPlainServer().listen(at(LISTEN));
  await once(other, 'listening');
  run();
  await once(entry!, 'exit');
  expect(output).toContain(`another process listens on ${at(LISTEN)}`);
  other.close();
  const stale = spawn('perl', [
    '-MSocket',
    '-e',
    'socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, pack_sockaddr_un($ARGV[0]))',
    at(LISTEN),
  ]);
  await once(stale, 'exit');
  expect(existsSync(at(LISTEN))).toBe(true);
  run();
  await expect.poll(() => call().catch(() => ''), LONG).toBe('shim');
});

test.each([
  ['listen: LISTEN\ncontainerRuntimeEndpoint: BACKEND\n'],
  [
    '# comment\nlogLevel: [\n"listen": "unix://LISTEN" # ours\ncontainerRuntimeEndpoint:   \'unix:BACKEND\'\nunknown: 1\n',
  ],
])('both sockets are read from a configuration file that may be invalid: %j', async (text) => {
  mode('crash');
  writeFileSync(at('config.yaml'), text.replace('LISTEN', at(LISTEN)).replace('BACKEND', at('backend/sock')));
  run(`--config=${at('config.yaml')}`);
  await listens();
  expect(await call()).toBe('containerd');
});

test('a flag that only prints something starts the shim alone', async () => {
  mode('serve');
  run('--version');
  expect(await once(entry!, 'exit')).toEqual([0, null]);
  expect(output).toBe('1.2.3\n');
});

test('needs only modules of perl-base', async () => {
  const folders = (await execa('perl', ['-e', 'print join "\\n", grep { /perl-base/ } @INC'])).stdout.split('\n');
  const used = readFileSync('container/entry.pl', 'utf8').matchAll(/^use ([A-Z]\S+?)[; ]/gm);
  for (const [, name = ''] of used)
    expect(
      folders.some((one) => existsSync(join(resolve(one), `${name.replaceAll('::', '/')}.pm`))),
      name,
    ).toBe(true);
});
