import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { type ClientHttp2Session, connect } from 'node:http2';
import { createConnection, createServer as createPlainServer } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { execa } from 'execa';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { AT_ONCE, EntryPoint, LONG, PATIENT } from '../../support/e2e/entry-point.ts';
import { highsIn, leaveHighs, restoredHighs } from '../../support/resize/left-highs.ts';

// The entry point of the image with a shim that only answers with its name. test/e2e/install/image.test.ts runs the
// real one, and test/bypass/drain.test.ts shows how clients move.

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

test('a shim that serves gets all clients, on a socket for root, until it is stopped', async () => {
  entry.mode('serve 7');
  entry.run([], { constants: PATIENT });
  await entry.listens();
  expect(await call()).toBe('shim');
  // As with the socket unit.
  expect(statSync(entry.listen).mode & 0o777).toBe(0o660);
  expect(statSync(at('run')).mode & 0o777).toBe(0o711);
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
  // test/e2e/install/image.test.ts measures the time.
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
  await entry.says('all clients use the shim');
  await entry.states(
    /^ActiveState=inactive\nActiveEnterTimestampMonotonic=@\d+\nInactiveEnterTimestampMonotonic=@\d+\n$/,
  );
});

test('a killed shim is started again at once, and after three short lives the bypass serves at once', async () => {
  entry.mode('serve');
  entry.run([], { constants: { ...PATIENT, PAUSE: 300 } });
  await entry.listens();
  for (const failure of [1, 2, 3]) {
    expect(await call()).toBe('shim');
    const { stdout } = await execa('pgrep', ['-P', String(entry.process!.pid)]);
    process.kill(Number(stdout), 'SIGKILL');
    await expect.poll(() => entry.output.match(/has ended \(signal 9\)/g)?.length, LONG).toBe(failure);
  }
  expect(entry.output.match(/again in \d+ s/g)).toEqual(['again in 0 s', 'again in 0 s', 'again in 300 s']);
  expect(await call()).toBe('containerd');
});

test('KEP-1287: the entry point of the image restores the memory.high that a killed shim has lowered, and no other', async () => {
  entry.mode('crash');
  leaveHighs(entry.folder);
  const sockets = ['--listen', entry.listen, `--container-runtime-endpoint=unix://${at('backend/sock')}`];
  entry.run([...sockets, '--state-folder', at('state'), `--cgroup-root=${at('cgroup')}`]);
  await entry.listens();
  await entry.says('the shim has ended');
  await expect.poll(() => highsIn(entry.folder), LONG).toEqual(restoredHighs);
});

test('upgrade: the pauses between starts of a failing shim double up to five minutes, while the bypass serves', async () => {
  entry.mode('crash');
  const since = performance.now();
  entry.run([], { constants: { UNSERVED: 0, TICK: 1 / 500 } });
  await entry.listens();
  const pauses = (): readonly number[] =>
    [...entry.output.matchAll(/again in (\d+) s/g)].map(([, seconds]) => Number(seconds));
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
  // Node removes its socket.
  await execa('s6-ipcserver-socketbinder', ['-D', entry.listen, 'true']);
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

describe('faults around the bypass of a container', () => {
  test('a configuration file that is a FIFO does not keep the bypass from serving', async () => {
    entry.mode('hang');
    await execa('mkfifo', [at('config.yaml')]);
    const sockets = ['--listen', entry.listen, '--container-runtime-endpoint', at('backend/sock')];
    entry.run([...sockets, '--config', at('config.yaml')], { constants: AT_ONCE });
    await entry.listens();
    expect(await call()).toBe('containerd');
  });

  test('with few descriptors the bypass closes clients beyond their number, and ends neither the others nor the shim', async () => {
    entry.mode('hang');
    // (40 - 16) / 6 places, and the proxy accepts one more than its limit.
    entry.run([], { constants: { ...PATIENT, ...AT_ONCE }, descriptors: 40 });
    await entry.listens();
    const clients = Array.from({ length: 5 }, () => new Client());
    const calls = (): Promise<readonly string[]> => Promise.all(clients.map((client) => client.call()));
    expect(await calls()).toEqual(Array(5).fill('containerd'));
    expect(await call().catch(() => '')).toBe('');
    expect(await calls()).toEqual(Array(5).fill('containerd'));
    expect(clients.map(({ connections }) => connections)).toEqual(Array(5).fill(1));
    for (const session of sessions) session.destroy();
    await expect.poll(() => call().catch(() => ''), LONG).toBe('containerd');
    expect(entry.output).not.toContain('killed');
  });

  test('a setting in a notation that the entry point does not read is reported, and one with blanks is read', async () => {
    entry.mode('crash');
    const listen = at('run/a b.sock');
    writeFileSync(
      at('config.yaml'),
      `listen: ${listen} # with a blank\n containerRuntimeEndpoint: ${at('backend/sock')}\n`,
    );
    entry.run(['--config', at('config.yaml')], { constants: AT_ONCE });
    await entry.says(
      'cannot read containerRuntimeEndpoint in this notation: use the flag --container-runtime-endpoint',
    );
    expect(existsSync(listen)).toBe(true);
  });

  test('a disk that does not answer keeps no client from containerd', async () => {
    entry.mode('crash');
    mkdirSync(at('state'));
    // Opens only with a writer.
    await execa('mkfifo', [at('state/record.json')]);
    const sockets = ['--listen', entry.listen, `--container-runtime-endpoint=unix://${at('backend/sock')}`];
    entry.run([...sockets, '--state-folder', at('state')]);
    await entry.listens();
    expect(await call()).toBe('containerd');
    entry.process!.kill('SIGTERM');
    await once(entry.process!, 'exit');
    // Ends the reader.
    closeSync(openSync(at('state/record.json'), constants.O_RDWR));
  });

  test('upgrade: a log that nobody reads does not keep the shim from taking over', async () => {
    entry.mode('crash');
    entry.run([], { constants: { ...PATIENT, ...AT_ONCE }, isLogStalled: true });
    await entry.listens();
    expect(await call()).toBe('containerd');
    // Longer than the pipe.
    const log = openSync(at('log'), constants.O_RDWR | constants.O_NONBLOCK);
    expect(() => {
      for (;;) writeSync(log, 'x'.repeat(1000));
    }).toThrow('EAGAIN');
    entry.mode('serve');
    await entry.states(/^ActiveState=inactive$/m);
    expect(await call()).toBe('shim');
    closeSync(log);
  });

  test('a second signal kills the shim, and the container still restores its memory.high', async () => {
    entry.mode('deaf');
    leaveHighs(entry.folder);
    const sockets = ['--listen', entry.listen, `--container-runtime-endpoint=unix://${at('backend/sock')}`];
    entry.run([...sockets, '--state-folder', at('state'), `--cgroup-root=${at('cgroup')}`], { constants: PATIENT });
    await entry.listens();
    await entry.says('deaf');
    entry.process!.kill('SIGTERM');
    await expect.poll(() => existsSync(entry.listen), LONG).toBe(false);
    entry.process!.kill('SIGTERM');
    expect(await once(entry.process!, 'close')).toEqual([137, null]);
    expect(highsIn(entry.folder)).toEqual(restoredHighs);
    expect(existsSync(at('run/.cri.sock.bypass'))).toBe(false);
  });

  test('a socket path that is too long is reported with its length and the limit', async () => {
    const path = `/run/${'x'.repeat(103)}`;
    entry.run(['--listen', path]);
    await entry.says(`listen: ${path} has 108 bytes, at most 107 are possible: use a shorter path`);
  });

  test('a log that nobody reads keeps no client of the bypass from containerd', async () => {
    writeFileSync(at('bin/node'), '#!/bin/sh\nwhile :; do echo "a line of the log of a shim that crashes" >&2; done\n');
    entry.run([], { constants: AT_ONCE, isLogStalled: true });
    await entry.listens();
    expect(await call()).toBe('containerd');
  });

  test('the entry point does not write through a symbolic link in the state folder', async () => {
    mkdirSync(at('run'));
    writeFileSync(at('victim'), 'content');
    symlinkSync(at('victim'), at('run/.cri.sock.bypass.new'));
    entry.mode('hang');
    entry.run([], { constants: AT_ONCE });
    await entry.listens();
    await entry.states(/^ActiveState=active$/m);
    expect(readFileSync(at('victim'), 'utf8')).toBe('content');
  });

  test('the entry point does not replace the socket of a process that accepts nothing, and does not wait for it', async () => {
    mkdirSync(at('run'));
    // The queue has two places.
    const other = spawn('s6-ipcserver-socketbinder', ['-D', '-b', '1', entry.listen, 'sleep', 'infinity']);
    await entry.listens();
    const waiting = [1, 2].map(() => createConnection(entry.listen));
    await Promise.all(waiting.map((socket) => once(socket, 'connect')));
    entry.run();
    await once(entry.process!, 'close');
    expect(entry.output).toContain(`another process listens on ${entry.listen}`);
    for (const socket of waiting) socket.destroy();
    other.kill();
    await once(other, 'exit');
  });

  test('upgrade: the bypass serves clients while a hanging shim cannot be killed', async () => {
    entry.mode('wait');
    entry.run([], { constants: { ...PATIENT, ...AT_ONCE, WATCHDOG: 2 } });
    await entry.listens();
    const pid = await entry.waitingShim();
    // A tracer that does not wait: to its parent, a traced process that is killed looks like one that waits for a disk.
    const PTRACE = process.arch === 'arm64' ? 117 : 101;
    const script =
      'syscall($ARGV[0], 0x4206, $ARGV[1] + 0, 0, 0) == 0 or die "ptrace: $!"; $| = 1; print "traced"; sleep';
    const tracer = spawn('perl', ['-e', script, String(PTRACE), String(pid)], { stdio: ['ignore', 'pipe', 'inherit'] });
    await once(tracer.stdout, 'data');
    // The watchdog interval starts at the shim's only notification.
    entry.mode('serve');
    try {
      await entry.says('the shim is killed: no notification for 2 s');
      expect(await call()).toBe('containerd');
      expect(entry.output).not.toContain('has ended');
    } finally {
      tracer.kill();
    }
    await entry.says('has ended (signal 9)');
  });

  test('the watchdog does not count the time for which the container of the shim is paused', async () => {
    entry.mode('wait');
    entry.run([], { constants: { ...PATIENT, WATCHDOG: 5 } });
    await entry.listens();
    await entry.waitingShim();
    const since = performance.now();
    entry.mode('serve');
    expect(await call()).toBe('shim');
    process.kill(-entry.process!.pid!, 'SIGSTOP');
    await delay(6000);
    process.kill(-entry.process!.pid!, 'SIGCONT');
    await entry.says('the shim is killed');
    // The pause counts as one tick.
    expect(performance.now() - since).toBeGreaterThan(6000 + 4000);
  });

  test('a bypass that was killed serves again, and a container that stops ends it', async () => {
    entry.mode('hang');
    entry.run([], { constants: { ...PATIENT, ...AT_ONCE } });
    await entry.listens();
    expect(await call()).toBe('containerd');
    await execa('pkill', ['-KILL', '-P', String(entry.process!.pid), '-f', 'systemd-socket-proxyd']);
    await expect.poll(() => call().catch(() => ''), LONG).toBe('containerd');
    entry.process!.kill('SIGTERM');
    await once(entry.process!, 'close');
    expect(existsSync(entry.listen)).toBe(false);
    expect(existsSync(at('run/.cri.sock.bypass'))).toBe(false);
  });

  test('upgrade: a shim that fails while clients move has the bypass accept clients again', async () => {
    entry.mode('crash');
    entry.run([], { constants: { ...PATIENT, ...AT_ONCE } });
    await entry.listens();
    const waiting = new Client();
    const slow = waiting.call('/slow');
    entry.mode('serve');
    await entry.says('1 connections have calls that run');
    entry.mode('crash');
    await execa('pkill', ['-KILL', '-P', String(entry.process!.pid), '-f', 'shim.mjs']);
    await entry.says('interrupted: the bypass still serves clients');
    expect(await call()).toBe('containerd');
    entry.answer();
    expect(await slow).toBe('slow');
  });
});
