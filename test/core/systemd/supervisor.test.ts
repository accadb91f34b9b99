import { execFileSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, read, rmSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { createCounters } from '../../../src/core/observe/counters.ts';
import { type LogFields, noLog } from '../../../src/core/observe/interfaces.ts';
import { type Supervisor, superviseBy, takeSupervisorVariables } from '../../../src/core/systemd/supervisor.ts';
import { NotifySocket } from '../../support/daemon/fake-systemd.ts';
import { eventually } from '../../support/fake-clock.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

let folder: string;
let closing: (() => unknown)[];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'notify-'));
  closing = [];
});
afterEach(async () => {
  vi.useRealTimers();
  for (const close of closing.reverse()) await close();
  rmSync(folder, { recursive: true });
});

/** Returns how many bytes it has read. */
const readFrom = async (descriptor: number, into: Buffer, at: number): Promise<number> =>
  (await promisify(read)(descriptor, into, at, into.length - at, null)).bytesRead;

/** Occupies threads of libuv's pool: each one opens a pipe without a writer. Returns a function that frees them. */
function occupyWorkers(count: number): () => Promise<unknown> {
  const pipe = join(folder, 'pipe');
  execFileSync('mkfifo', [pipe]);
  const opening = Promise.all(Array.from({ length: count }, () => open(pipe)));
  return async () => {
    // Linux opens a pipe for both directions without waiting.
    const writer = openSync(pipe, 'r+');
    for (const file of await opening) await file.close();
    closeSync(writer);
  };
}

function listenAt(...at: ConstructorParameters<typeof NotifySocket>): NotifySocket {
  const systemd = new NotifySocket(...at);
  closing.push(() => systemd.close());
  return systemd;
}

function supervised(env: NodeJS.ProcessEnv) {
  const counters = createCounters();
  const warnings: (LogFields & { message: string })[] = [];
  const log = { ...noLog, warn: (fields: LogFields, message: string) => void warnings.push({ ...fields, message }) };
  const supervisor: Supervisor = superviseBy(takeSupervisorVariables(env, 42), { log, counters });
  closing.push(() => supervisor.close());
  const faults = (): unknown => counters.families.find(({ description }) => /notify/.test(description.name))?.series();
  return { supervisor, warnings, faults };
}

describe('notifications of systemd', () => {
  test.each([
    ['at a path', () => join(folder, 'notify.sock')],
    ['at an abstract name', () => `@cri-resize-shim-test/${process.pid}`],
  ])('reports its start, and its stop with the duration, to a socket %s', async (_, name) => {
    const systemd = listenAt(name());
    const { supervisor, warnings } = supervised({ NOTIFY_SOCKET: name() });
    await supervisor.ready('serving\nall');
    await supervisor.stopping(30_000, 'running calls end');
    await systemd.waitFor('STOPPING=1');
    expect(systemd.messages).toEqual([
      'READY=1\nSTATUS=serving all',
      'STOPPING=1\nEXTEND_TIMEOUT_USEC=30000000\nSTATUS=running calls end',
    ]);
    expect(warnings).toEqual([]);
  });

  test('notifies the watchdog at half of its interval once the service has started', async () => {
    const systemd = listenAt(join(folder, 'notify.sock'));
    const { supervisor } = supervised({ NOTIFY_SOCKET: systemd.name, WATCHDOG_USEC: '200000', WATCHDOG_PID: '42' });
    const start = performance.now();
    await supervisor.ready('serving');
    for (const past of [1, 2, 3]) expect(await systemd.waitFor('WATCHDOG=1', past)).toBe('WATCHDOG=1');
    const elapsed = performance.now() - start;
    // Three half intervals: the notifications do not arrive in one burst.
    expect(elapsed).toBeGreaterThan(250);
    expect(systemd.messages[0]).toBe('READY=1\nSTATUS=serving');
  });

  test('upgrade: the watchdog gets no notification while the event loop is blocked', async () => {
    const systemd = listenAt(join(folder, 'notify.sock'));
    const { supervisor } = supervised({ NOTIFY_SOCKET: systemd.name, WATCHDOG_USEC: '40000' });
    await supervisor.ready('serving');
    await systemd.waitFor('WATCHDOG=1');
    const past = systemd.messages.length;
    const until = performance.now() + 400;
    while (performance.now() < until);
    await systemd.waitFor('WATCHDOG=1', past);
    // Twenty half intervals have passed.
    expect(systemd.messages.length - past).toBeLessThan(5);
  });

  test('upgrade: the watchdog gets no notification while the threads for file I/O are blocked', async () => {
    const systemd = listenAt(join(folder, 'notify.sock'), 'on drain');
    const { supervisor } = supervised({ NOTIFY_SOCKET: systemd.name, WATCHDOG_USEC: '40000' });
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    await supervisor.ready('serving');
    // While threads are free, each half interval has one notification.
    vi.advanceTimersByTime(20);
    // Unlike expect.poll, this does not advance the fake time.
    await eventually(() => systemd.drain().includes('WATCHDOG=1'));
    // libuv has four threads.
    const free = occupyWorkers(4);
    // The real time in which a free thread would answer.
    for (const until = performance.now() + 400; performance.now() < until; ) {
      vi.advanceTimersByTime(20);
      await delay(20);
    }
    expect(systemd.drain()).toEqual([]);
    await free();
    await expect.poll(() => systemd.drain(), LONG_WAIT).toContain('WATCHDOG=1');
  });

  test('logs and counts notifications that cannot reach the socket once, without an error', async () => {
    const { supervisor, warnings, faults } = supervised({
      NOTIFY_SOCKET: join(folder, 'nobody.sock'),
      WATCHDOG_USEC: '2000',
    });
    await supervisor.ready('serving');
    await supervisor.stopping(1, 'going');
    expect(warnings).toEqual([
      {
        error: `sendto ${join(folder, 'nobody.sock')}: ENOENT`,
        message: 'notification of systemd failed',
      },
    ]);
    expect(faults()).toEqual([{ kind: 'number', labels: [], value: 1 }]);
  });

  test.each([
    ['vsock:2:1234', 'vsock:2:1234 is neither an absolute path nor an abstract name'],
    [`/${'x'.repeat(200)}`, `/${'x'.repeat(200)} is too long for a socket name`],
  ])('logs a failed notification if %s is not a valid socket name', async (name, error) => {
    const { supervisor, warnings } = supervised({ NOTIFY_SOCKET: name });
    await supervisor.ready('serving');
    expect(warnings).toEqual([{ error, message: 'notification of systemd failed' }]);
  });
});

describe('the environment variables of systemd', () => {
  test("reports to the pipe of the image's entry point in lines, without koffi", async () => {
    const pipe = join(folder, 'pipe');
    execFileSync('mkfifo', [pipe]);
    // Linux opens a pipe for both directions without waiting.
    const descriptor = openSync(pipe, 'r+');
    closing.push(() => closeSync(descriptor));
    const env = { CRI_RESIZE_SHIM_NOTIFY_FD: String(descriptor), WATCHDOG_USEC: '200000', PATH: '/bin' };
    vi.doMock('koffi', () => {
      throw new Error('no koffi');
    });
    closing.push(() => vi.doUnmock('koffi'));
    const { supervisor, warnings } = supervised(env);
    expect(env).toEqual({ PATH: '/bin' });
    await supervisor.check();
    await supervisor.ready('serving\nall');
    const expected = 'READY=1\nSTATUS=serving all\nWATCHDOG=1\nWATCHDOG=1\n';
    const received = Buffer.alloc(expected.length);
    for (let at = 0; at < received.length; ) at += await readFrom(descriptor, received, at);
    expect(received.toString()).toBe(expected);
    expect(warnings).toEqual([]);
  });

  test('removes the variables of systemd from the environment, so that child processes do not inherit them', () => {
    const env = { NOTIFY_SOCKET: '/n', WATCHDOG_USEC: '30000000', WATCHDOG_PID: '42', PATH: '/bin' };
    expect(takeSupervisorVariables(env, 42)).toEqual({ receiver: '/n', watchdogMs: 30_000 });
    expect(env).toEqual({ PATH: '/bin' });
  });

  test.each<{ what: string; env: NodeJS.ProcessEnv }>([
    {
      what: 'WATCHDOG_PID is another process',
      env: { NOTIFY_SOCKET: '/n', WATCHDOG_USEC: '30000000', WATCHDOG_PID: '41' },
    },
    { what: 'WATCHDOG_USEC is no number', env: { NOTIFY_SOCKET: '/n', WATCHDOG_USEC: 'soon' } },
    { what: 'WATCHDOG_USEC is 0', env: { NOTIFY_SOCKET: '/n', WATCHDOG_USEC: '0' } },
    { what: 'WATCHDOG_USEC is missing', env: { NOTIFY_SOCKET: '/n' } },
  ])('enables no watchdog if $what', ({ env }) => {
    expect(takeSupervisorVariables(env, 42)).toEqual({ receiver: '/n', watchdogMs: undefined });
  });

  test.each([[{}], [{ NOTIFY_SOCKET: '' }], [{ WATCHDOG_USEC: '1' }]])(
    'enables no notifications with the environment %j',
    (env: NodeJS.ProcessEnv) => {
      expect(takeSupervisorVariables(env, 42)).toBeUndefined();
    },
  );
});
