import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { status } from '@grpc/grpc-js';
import { describe, expect, test, vi } from 'vitest';
import type { Program } from '../support/daemon/daemon-program.ts';
import { stopTwice, TestDaemon } from '../support/daemon/test-daemon.ts';
import { LONG_WAIT } from '../support/long-wait.ts';

const daemon = new TestDaemon();

/**
 * Each fsync blocks a thread of libuv's pool, as on a disk that hangs: the thread opens a pipe without a writer. With
 * HANGS_FROM_START, a thread hangs before the shim does anything.
 */
const PRELOAD = `
import { open } from 'node:fs/promises';
const file = await open('/');
Object.getPrototypeOf(file).sync = async () => {
  const opening = open(process.env.PIPE);
  process.stderr.write('{"msg":"fsync hangs"}\\n');
  await opening;
};
await file.close();
if (process.env.HANGS_FROM_START) void open(process.env.PIPE);
process.on('SIGUSR2', () => { throw new Error('a bug'); });
`;

/** Starts a daemon whose journal hangs. */
function startHanging(env: NodeJS.ProcessEnv = {}): Program {
  const [pipe, preload] = [join(daemon.folder, 'pipe'), join(daemon.folder, 'preload.mjs')];
  execFileSync('mkfifo', [pipe]);
  writeFileSync(preload, PRELOAD);
  return daemon.startWith({ env: { ...env, PIPE: pipe, NODE_OPTIONS: `--import=${preload}` } });
}

async function serving(program: Program): Promise<void> {
  await program.logged('fsync hangs');
  await program.logged('serving');
}

describe('a shim whose disk hangs', () => {
  test.each(['SIGTERM', 'SIGINT'] as const)(
    'a shim whose disk hangs closes everything else and ends by the signal (%s)',
    async (signal) => {
      await daemon.startBackend();
      const program = startHanging();
      await serving(program);
      expect(await daemon.connect().call('/s/Echo', 'x')).toBe('x');
      program.kill(signal);
      expect(await program.exited).toEqual({ code: null, signal });
      expect(program.log.filter(({ level }) => level === 'warn')).toContainEqual(
        expect.objectContaining({ msg: 'journal not closed: its disk does not answer', timeoutMs: 1000 }),
      );
      expect(program.log.find(({ msg }) => msg === 'stopped')).toMatchObject({ level: 'info' });
    },
  );

  test.each(['SIGTERM', 'SIGINT'] as const)(
    'a shim whose disk hangs ends at once after a second signal (%s)',
    async (signal) => {
      const backend = await daemon.startBackend();
      const program = startHanging();
      await serving(program);
      expect(await stopTwice(daemon, backend, program, signal)).toMatchObject({ exit: { code: null, signal } });
      expect(program.log.map(({ msg }) => msg)).not.toContain('stopped');
    },
  );

  test('a shim whose disk hangs ends by SIGKILL after an uncaught exception', async () => {
    const program = startHanging();
    await serving(program);
    program.kill('SIGUSR2');
    expect(await program.exited).toEqual({ code: null, signal: 'SIGKILL' });
    expect(program.log.at(-1)).toMatchObject({ level: 'error', msg: 'uncaught exception' });
  });

  test('a shim whose disk hangs ends by SIGKILL if it cannot start', async () => {
    writeFileSync(join(daemon.folder, 'shim'), '');
    const program = startHanging({ HANGS_FROM_START: 'yes' });
    expect(await program.exited).toEqual({ code: null, signal: 'SIGKILL' });
    expect(program.stderr).toContain('cri-resize-shim: ');
  });
});

describe('a stop signal', () => {
  test('a stop signal lets running calls end, rejects new ones, removes the socket, and exits with code 0', async () => {
    const backend = await daemon.startBackend();
    const program = daemon.start();
    await program.logged('serving');
    const client = daemon.connect();
    const hanging = once(backend.events, 'hanging');
    const call = client.call('/s/Hang', 'late');
    await hanging;
    const stream = client.stream('/s/Stream');
    const received: string[] = [];
    stream.on('data', (bytes: Buffer) => received.push(String(bytes)));
    const ended = once(stream, 'end');
    await once(stream, 'data');

    program.kill('SIGTERM');
    expect(await program.logged('stopping')).toMatchObject({ signal: 'SIGTERM', connections: 1 });
    await vi.waitFor(() => expect(existsSync(daemon.listen)).toBe(false), LONG_WAIT);
    expect(await daemon.connect().code('/s/Echo')).toBe(status.UNAVAILABLE);
    backend.release();
    expect(await call).toBe('late');
    await ended;
    expect(received).toEqual(['first', 'last']);
    expect(await program.exited).toEqual({ code: 0, signal: null });
    // Not always the last line: a recovery that has begun may end later.
    expect(program.log.map(({ level, msg }) => `${level} ${msg}`)).toContain('info stopped');
    // No call was cut off. Other warnings are possible, because this backend has no pods.
    expect(program.log.filter(({ level, cut }) => level === 'warn' && cut !== undefined)).toEqual([]);
  });

  test('a stop signal ends the process at once if all clients are idle', async () => {
    await daemon.startBackend();
    const program = daemon.start();
    await program.logged('serving');
    await daemon.connect().call('/s/Echo', 'x');
    program.kill('SIGINT');
    expect(await program.exited).toEqual({ code: 0, signal: null });
  });

  test('a stop signal cuts off calls after the shutdown timeout, logs their number, and exits with code 0', async () => {
    const backend = await daemon.startBackend();
    const program = daemon.start('--shutdown-timeout=200ms');
    await program.logged('serving');
    const client = daemon.connect();
    const codes: Promise<number>[] = [];
    for (let count = 0; count < 3; count += 1) {
      const hanging = once(backend.events, 'hanging');
      codes.push(client.code('/s/Hang'));
      await hanging;
    }
    program.kill('SIGTERM');
    expect(await program.exited).toEqual({ code: 0, signal: null });
    expect(program.log.find(({ level }) => level === 'warn')).toMatchObject({ cut: 3, timeoutMs: 200 });
    for (const code of await Promise.all(codes)) expect(code).toBe(status.UNAVAILABLE);
  });

  test.each(['SIGTERM', 'SIGINT'] as const)('a second stop signal (%s) ends the process at once', async (signal) => {
    const backend = await daemon.startBackend();
    const program = daemon.start();
    await program.logged('serving');
    const { exit, code } = await stopTwice(daemon, backend, program, signal);
    expect(exit).toEqual({ code: null, signal });
    // The connection is lost without GOAWAY, which grpc-js reports by either code.
    expect([status.UNAVAILABLE, status.INTERNAL]).toContain(code);
  });
});
