import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { createConnection, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { execa } from 'execa';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { AT_ONCE, EntryPoint, LONG, PATIENT } from '../support/daemon/entry-point.ts';

// Faults around the bypass of a container. entry.test.ts shows its normal work.

let entry: EntryPoint;
/** A backend that only copies what a test writes. */
let raw: Server;
const connections: Socket[] = [];
const clients: Socket[] = [];

beforeEach(async () => {
  entry = new EntryPoint();
  raw = createServer((socket) => void connections.push(socket.on('error', () => undefined)));
  raw.listen(entry.at('raw'));
  await once(raw, 'listening');
});
afterEach(async () => {
  for (const socket of [...clients.splice(0), ...connections.splice(0)]) socket.destroy();
  raw.close();
  await entry.remove();
});

const runBefore = (backend: string, options?: Parameters<EntryPoint['run']>[1]): void =>
  entry.run(['--listen', entry.listen, '--container-runtime-endpoint', entry.at(backend)], options);

/** A client of the entry point, and what it has received. */
function connectClient(): { socket: Socket; received: () => string; isClosed: () => boolean } {
  const socket = createConnection(entry.listen).on('error', () => undefined);
  clients.push(socket);
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => void chunks.push(chunk));
  return { socket, received: () => Buffer.concat(chunks).toString('latin1'), isClosed: () => socket.closed };
}

/** A frame of data (RFC 9113, section 6.1). */
function frame(type: number, body: Buffer): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(body.length, 0, 3);
  head[3] = type;
  return Buffer.concat([head, body]);
}

test('upgrade: a client of the bypass gets the answers of a backend that has closed, even if it can no longer write to it', async () => {
  entry.mode('crash');
  runBefore('raw', { constants: AT_ONCE });
  await entry.listens();
  const client = connectClient();
  await expect.poll(() => connections.length, LONG).toBe(1);
  // The entry point receives both at the same time, because it is stopped.
  entry.process!.kill('SIGSTOP');
  client.socket.write('window update');
  const last = frame(0, Buffer.alloc(20_000, 'x'));
  connections[0]!.end(last);
  await once(connections[0]!, 'finish');
  connections[0]!.destroy();
  entry.process!.kill('SIGCONT');
  await expect.poll(client.isClosed, LONG).toBe(true);
  expect(client.received()).toBe(last.toString('latin1'));
});

test('a client gets no second GOAWAY with a higher stream after the GOAWAY of containerd', async () => {
  entry.mode('crash');
  runBefore('raw', { constants: { ...PATIENT, ...AT_ONCE } });
  await entry.listens();
  const client = connectClient();
  await expect.poll(() => connections.length, LONG).toBe(1);
  const settings = frame(4, Buffer.alloc(0));
  // Stream 5 is the last one that containerd answers.
  const goaway = frame(7, Buffer.from('0000000500000000', 'hex'));
  connections[0]!.write(Buffer.concat([settings, goaway]));
  entry.mode('serve');
  await entry.says('clients of the bypass move to it');
  const answer = frame(0, Buffer.from('answer'));
  connections[0]!.end(answer);
  await expect.poll(client.isClosed, LONG).toBe(true);
  expect(client.received()).toBe(Buffer.concat([settings, goaway, answer]).toString('latin1'));
});

test('upgrade: clients beyond the free descriptors wait, and the bypass ends neither a client nor the start of the shim', async () => {
  entry.mode('hang');
  runBefore('raw', { constants: { ...PATIENT, ...AT_ONCE, QUIET: 600 }, descriptors: 40 });
  await entry.listens();
  // The entry point computes (40 - 16) / 2 places.
  const places = 12;
  const all = Array.from({ length: 30 }, connectClient);
  await entry.says('the shim does not serve');
  await expect.poll(() => connections.length, LONG).toBe(places);
  for (const { socket } of all) socket.write('hello');
  // A disconnected client frees a place for a waiting client.
  for (const { socket } of all.slice(0, 5)) socket.destroy();
  await expect.poll(() => connections.length, LONG).toBe(places + 5);
  expect(all.slice(5).filter(({ isClosed }) => isClosed())).toEqual([]);
  expect(entry.output).not.toContain('killed');
});

test('the bypass closes a client that makes no call when a later client needs its place', async () => {
  entry.mode('hang');
  runBefore('raw', { constants: { ...PATIENT, ...AT_ONCE, QUIET: 1 }, descriptors: 40 });
  await entry.listens();
  const caller = connectClient();
  caller.socket.write(Buffer.alloc(200));
  const idle = Array.from({ length: 11 }, connectClient);
  await entry.says('the shim does not serve');
  await expect.poll(() => connections.length, LONG).toBe(12);
  const late = connectClient();
  await expect.poll(() => connections.length, LONG).toBe(13);
  late.socket.write('hello');
  await expect.poll(() => idle.filter(({ isClosed }) => isClosed()).length, LONG).toBe(1);
  expect([late.isClosed(), caller.isClosed()]).toEqual([false, false]);
});

test('a configuration file that is a FIFO does not keep the bypass from serving', async () => {
  entry.mode('hang');
  await execa('mkfifo', [entry.at('config.yaml')]);
  const flags = [
    '--listen',
    entry.listen,
    '--container-runtime-endpoint',
    entry.at('raw'),
    '--config',
    entry.at('config.yaml'),
  ];
  entry.run(flags, { constants: AT_ONCE });
  await entry.listens();
  await entry.says('the shim does not serve');
});

test('without a free descriptor the bypass pauses before it accepts again, and the client waits', async () => {
  entry.mode('hang');
  runBefore('raw', { constants: { ...PATIENT, ...AT_ONCE } });
  await entry.listens();
  await entry.says('the shim does not serve');
  const limit = (count: string): Promise<unknown> =>
    execa('prlimit', ['--pid', String(entry.process!.pid), `--nofile=${count}:`]);
  await limit('3');
  const since = performance.now();
  const client = connectClient();
  const pauses = (): number => entry.output.split('no client is accepted for 1 s').length - 1;
  await expect.poll(pauses, LONG).toBeGreaterThanOrEqual(3);
  // Without the pause, there would be thousands at once. The entry point's clock counts hundredths of a second.
  expect(performance.now() - since).toBeGreaterThan((pauses() - 1) * 990);
  expect([connections.length, client.isClosed()]).toEqual([0, false]);
  await limit('1000');
  await expect.poll(() => connections.length, LONG).toBe(1);
});

test('a client that does not read does not delay the GOAWAY to other clients', async () => {
  entry.mode('crash');
  runBefore('raw', { constants: { ...PATIENT, ...AT_ONCE } });
  await entry.listens();
  const stalled = connectClient();
  await expect.poll(() => connections.length, LONG).toBe(1);
  const other = connectClient();
  await expect.poll(() => connections.length, LONG).toBe(2);
  stalled.socket.pause();
  const data = frame(0, Buffer.alloc(16_384, 'x'));
  // The data exceeds the buffers of the sockets and the entry point.
  for (let at = 0; at < 200; at += 1) connections[0]!.write(data);
  connections[1]!.write(frame(4, Buffer.alloc(0)));
  await expect.poll(() => other.received().length, LONG).toBe(9);
  entry.mode('serve');
  await entry.says('clients of the bypass move to it');
  await expect.poll(() => other.received().length, LONG).toBe(9 + 17);
  expect(other.received().charCodeAt(9 + 3)).toBe(7);
  expect(connections[0]!.writableLength).toBeGreaterThan(0);
});

test('a socket path that is too long is reported with its length and the limit', async () => {
  const path = `/run/${'x'.repeat(95)}`;
  entry.run(['--listen', path]);
  await entry.says(`listen: ${path} has 100 bytes, at most 99 are possible: use a shorter path`);
});

test('upgrade: a log that nobody reads delays no client of the bypass', async () => {
  await entry.serve();
  writeFileSync(
    entry.at('bin/node'),
    '#!/bin/sh\nwhile :; do echo "a line of the log of a shim that crashes" >&2; done\n',
  );
  entry.run([], { constants: AT_ONCE, isLogStalled: true });
  await entry.listens();
  const client = connectClient();
  client.socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
  await expect.poll(() => client.received().length, LONG).toBeGreaterThan(0);
});

test('the entry point does not write through a symbolic link in the state folder', async () => {
  mkdirSync(entry.at('run'));
  writeFileSync(entry.at('victim'), 'content');
  symlinkSync(entry.at('victim'), entry.at('run/.cri.sock.bypass.new'));
  entry.mode('hang');
  entry.run([], { constants: AT_ONCE });
  await entry.listens();
  await entry.says('the shim does not serve');
  await entry.states(/^ActiveState=active$/m);
  expect(readFileSync(entry.at('victim'), 'utf8')).toBe('content');
});

test('the entry point does not replace the socket of a process that accepts nothing, and does not wait for it', async () => {
  mkdirSync(entry.at('run'));
  const script = `socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, pack_sockaddr_un($ARGV[0])); listen(S, 0);
    for (1 .. 3) { socket(my $c, AF_UNIX, SOCK_STREAM, 0); fcntl($c, 4, 2048); connect($c, pack_sockaddr_un($ARGV[0])); push @c, $c }
    $| = 1; print "full"; sleep`;
  const other = spawn('perl', ['-MSocket', '-e', script, entry.listen], { stdio: ['ignore', 'pipe', 'inherit'] });
  await once(other.stdout, 'data');
  entry.run();
  await expect.poll(() => entry.process!.exitCode, LONG).not.toBe(null);
  await entry.says(`another process listens on ${entry.listen}`);
  const ended = once(other, 'exit');
  other.kill();
  await ended;
});

test('upgrade: the bypass serves clients while a hanging shim cannot be killed', async () => {
  entry.mode('wait');
  runBefore('raw', { constants: { ...PATIENT, ...AT_ONCE, WATCHDOG: 2 } });
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
    connectClient();
    await expect.poll(() => connections.length, LONG).toBe(1);
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
  const client = connectClient();
  client.socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
  await expect.poll(() => client.received().length, LONG).toBeGreaterThan(0);
  process.kill(-entry.process!.pid!, 'SIGSTOP');
  await delay(6000);
  process.kill(-entry.process!.pid!, 'SIGCONT');
  await entry.says('the shim is killed');
  // The remaining time follows before the pause. The clock of the entry point counts hundredths of a second.
  expect(performance.now() - since).toBeGreaterThan(10_950);
});
