import { once } from 'node:events';
import { chmodSync, chownSync, lstatSync } from 'node:fs';
import { Metadata, status } from '@grpc/grpc-js';
import { describe, expect, test, vi } from 'vitest';
import { version } from '../../src/core/config/version.ts';
import { TestDaemon } from '../support/daemon/test-daemon.ts';
import { LONG_WAIT } from '../support/long-wait.ts';

const daemon = new TestDaemon();
const isRoot = process.getuid?.() === 0;

describe('the daemon', () => {
  test('forwards calls of any service to the backend, and its socket has the mode and group of the backend socket', async () => {
    await daemon.startBackend();
    chmodSync(daemon.backendPath, 0o660);
    if (isRoot) chownSync(daemon.backendPath, 0, 1234);
    const program = daemon.start();
    expect(await program.logged('serving')).toMatchObject({
      level: 'info',
      version,
      listen: daemon.listen,
      backend: daemon.backendPath,
    });
    expect(await daemon.connect().call('/s/Echo', 'hello')).toBe('hello');
    expect(await daemon.connect().code('/s/None')).toBe(status.UNIMPLEMENTED);
    expect((lstatSync(daemon.listen).mode & 0o777).toString(8)).toBe('660');
    if (isRoot) expect(lstatSync(daemon.listen).gid).toBe(1234);
    expect(program.stdout).toBe('');
  });

  test('forwards calls with --intercept=false', async () => {
    await daemon.startBackend();
    const program = daemon.start('--intercept=false');
    expect(await program.logged('serving')).toMatchObject({ intercept: false });
    expect(await daemon.connect().call('/s/Echo', 'hello')).toBe('hello');
  });

  test('starts without a backend: calls end UNAVAILABLE until it is there, then the socket gets its mode', async () => {
    const program = daemon.start();
    await program.logged('serving');
    const client = daemon.connect();
    expect(await client.code('/s/Echo')).toBe(status.UNAVAILABLE);
    if (isRoot) expect((lstatSync(daemon.listen).mode & 0o777).toString(8)).toBe('600');
    await daemon.startBackend();
    chmodSync(daemon.backendPath, 0o666);
    await vi.waitFor(async () => expect(await client.code('/s/Echo')).toBe(0), LONG_WAIT);
    await vi.waitFor(() => expect((lstatSync(daemon.listen).mode & 0o777).toString(8)).toBe('666'), LONG_WAIT);
  });

  test('logs no content of messages or metadata at level trace', async () => {
    await daemon.startBackend();
    const program = daemon.start('--log-level=trace', '--log-passed-calls');
    await program.logged('serving');
    const metadata = new Metadata();
    metadata.set('authorization', 'Bearer hunter2');
    await daemon.connect().call('/s/Echo', 'PASSWORD=hunter2', metadata);
    program.kill('SIGTERM');
    expect(await program.exited).toEqual({ code: 0, signal: null });
    expect(program.stderr).not.toContain('hunter2');
  });

  test('serves calls after the reader of its log has closed it', async () => {
    await daemon.startBackend();
    const program = daemon.start('--log-level=trace', '--log-passed-calls');
    await program.logged('serving');
    program.process.stderr?.destroy();
    const client = daemon.connect();
    for (const text of ['a', 'b', 'c']) expect(await client.call('/s/Echo', text)).toBe(text);
    program.kill('SIGTERM');
    expect((await once(program.process, 'exit'))[0]).toBe(0);
  });

  test('H3: answers calls while the reader of its log stalls', async () => {
    await daemon.startBackend();
    const program = daemon.start('--log-level=trace', '--log-passed-calls');
    await program.logged('serving');
    program.process.stderr?.pause();
    const client = daemon.connect();
    // More lines than fit into the socket between the two processes.
    const calls = Array.from({ length: 6000 }, (_, at) => String(at));
    for (let at = 0; at < calls.length; at += 100)
      expect(await Promise.all(calls.slice(at, at + 100).map((text) => client.call('/s/Echo', text)))).toEqual(
        calls.slice(at, at + 100),
      );
    program.process.stderr?.resume();
    program.kill('SIGTERM');
    expect(await program.exited).toEqual({ code: 0, signal: null });
  });
});
