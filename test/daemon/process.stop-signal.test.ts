import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { status } from '@grpc/grpc-js';
import { describe, expect, test, vi } from 'vitest';
import { stopTwice } from '../support/daemon/second-signal.ts';
import { TestDaemon } from '../support/daemon/test-daemon.ts';
import { LONG_WAIT } from '../support/long-wait.ts';

const daemon = new TestDaemon();

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
    expect(program.log.map(({ level, msg }) => `${level} ${msg}`).slice(-1)).toEqual(['info stopped']);
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
