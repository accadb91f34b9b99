import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, lstatSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { request as httpRequest } from 'node:http';
import { createConnection } from 'node:net';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { Metadata, status } from '@grpc/grpc-js';
import { describe, expect, test, vi } from 'vitest';
import { version } from '../../src/core/config/version.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { ErrorCode } from '../../src/http2/errors.ts';
import { queryRuntime } from '../../src/install/host/query-runtime.ts';
import { SHIM_STATUS_PATH } from '../../src/runtime/backend.ts';
import { CONNECTION_LIMIT } from '../../src/server/client-connections.ts';
import { FakeSystemd, NotifySocket } from '../support/daemon/fake-systemd.ts';
import type { FakeBackend } from '../support/daemon/test-daemon.ts';
import { TestDaemon } from '../support/daemon/test-daemon.ts';
import { headers, PREFACE, request, rst, SETTINGS_ACK, settings } from '../support/http2/wire.ts';
import { LONG_WAIT } from '../support/long-wait.ts';
import { highsIn, leaveHighs, restoredHighs } from '../support/resize/left-highs.ts';

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

describe('connections of clients', () => {
  /** For each input line, opens a connection with an endless call. Prints a line for each connection that ends. */
  const LEAK = `
const { connect } = require('node:http2');
const { createConnection } = require('node:net');
const [, path] = process.argv;
const headers = { ':method': 'POST', ':path': '/s/Hang', 'content-type': 'application/grpc', te: 'trailers' };
require('node:readline').createInterface({ input: process.stdin }).on('line', () => {
  const session = connect('http://localhost', { createConnection: () => createConnection(path) });
  session.on('error', () => undefined).on('close', () => console.log('ended'));
  session.request(headers).on('error', () => undefined).end(Buffer.alloc(5));
});
`;

  /** Another process, which does not close its connections. */
  class LeakingClient {
    readonly #process;
    ended = 0;

    constructor(path: string) {
      this.#process = spawn(process.execPath, ['-e', LEAK, path], { stdio: ['pipe', 'pipe', 'inherit'] });
      createInterface({ input: this.#process.stdout }).on('line', () => {
        this.ended += 1;
        this.#process.emit('ended');
      });
      daemon.cleanUp(async () => {
        this.#process.kill();
        await once(this.#process, 'close');
      });
    }

    /** Opens connections until the backend has this many calls more. */
    async open(count: number, backend: FakeBackend): Promise<void> {
      let running = 0;
      const all = new Promise<void>((resolve) =>
        backend.events.on('hanging', () => (running += 1) === count && resolve()),
      );
      this.leak(count);
      await all;
      backend.events.removeAllListeners();
    }

    leak(count: number): void {
      this.#process.stdin.write('\n'.repeat(count));
    }

    async untilEnded(count: number): Promise<void> {
      while (this.ended < count) await once(this.#process, 'ended');
    }
  }

  test('a process that leaks connections with running calls does not lock out other processes', async () => {
    const backend = await daemon.startBackend();
    const program = daemon.start();
    await program.logged('serving');
    const kubelet = daemon.connect();
    expect(await kubelet.code('/s/Echo')).toBe(0);
    const agent = new LeakingClient(daemon.listen);
    await agent.open(CONNECTION_LIMIT - 1, backend);
    // Its own connections are refused, and kubelet keeps its idle one.
    agent.leak(3);
    await agent.untilEnded(3);
    expect(await kubelet.code('/s/Echo')).toBe(0);
    expect(agent.ended).toBe(3);
    // Two more connections of kubelet close two connections of the agent.
    for (const ended of [4, 5]) {
      daemon
        .connect()
        .stream('/s/Stream')
        .on('error', () => undefined);
      await agent.untilEnded(ended);
    }
    expect(await daemon.connect().code('/s/Echo')).toBe(0);
    expect(await program.logged('too many client connections')).toMatchObject({
      level: 'warn',
      held: CONNECTION_LIMIT - 1,
    });
  });

  test('a new connection does not end connections with running calls of processes that have few connections each', async () => {
    const backend = await daemon.startBackend();
    await daemon.start().logged('serving');
    const agents = Array.from({ length: 5 }, () => new LeakingClient(daemon.listen));
    const share = CONNECTION_LIMIT / 4 - 1;
    for (const [at, agent] of agents.entries())
      await agent.open(at < 4 ? share : CONNECTION_LIMIT - 4 * share, backend);
    expect(await daemon.connect().code('/s/Echo')).not.toBe(0);
    expect(agents.map(({ ended }) => ended)).toEqual([0, 0, 0, 0, 0]);
  });
});

describe('hostile input', () => {
  const HANDLED = '/runtime.v1.RuntimeService/UpdateContainerResources';
  const AMENDED = '/runtime.v1.RuntimeService/ContainerStatus';

  /** Returns the fields of a request without those of these names. */
  const without = (path: string, name: string, ...extra: { name: string; value: string }[]) => [
    ...request(path).filter((field) => field.name !== name),
    ...extra,
  ];
  const gzip = { name: 'grpc-encoding', value: 'gzip' };

  /** Sends all calls, each with RST_STREAM, in one write. Resolves when the peer closed or had time to read them. */
  async function sendAndReset(
    path: string,
    calls: readonly (readonly { name: string; value: string }[])[],
  ): Promise<void> {
    const socket = createConnection(path);
    await once(socket, 'connect');
    socket.on('error', () => undefined).resume();
    const codes = [ErrorCode.CANCEL, ErrorCode.INTERNAL_ERROR, ErrorCode.NO_ERROR];
    const frames = calls.map((fields, index) =>
      Buffer.concat([headers(2 * index + 1, fields), rst(2 * index + 1, codes[index % codes.length] ?? 0)]),
    );
    socket.write(Buffer.concat([PREFACE, settings(), SETTINGS_ACK, ...frames]));
    await Promise.race([once(socket, 'close'), delay(300)]);
    socket.destroy();
  }

  describe('H1: calls that are reset in the same write', () => {
    test.each([
      ['a handled call without content type', without(HANDLED, 'content-type')],
      [
        'a handled call of another content type',
        without(HANDLED, 'content-type', { name: 'content-type', value: 'text/html' }),
      ],
      ['a compressed amended call without content type', without(AMENDED, 'content-type', gzip)],
      ['a handled call with an invalid timeout', request(HANDLED, [{ name: 'grpc-timeout', value: 'soon' }])],
      ['a handled call of an unknown encoding', request(HANDLED, [{ name: 'grpc-encoding', value: 'none' }])],
      ['a handled call', request(HANDLED)],
    ])('H1: the process survives resets in the same write on the CRI socket: %s', async (_, fields) => {
      await daemon.startBackend();
      const program = daemon.start();
      await program.logged('serving');
      await sendAndReset(daemon.listen, [fields, fields, fields]);
      expect(await daemon.connect().call('/s/Echo', 'alive')).toBe('alive');
      expect(program.log.filter(({ level }) => level === 'error')).toEqual([]);
      expect(program.process.exitCode).toBeNull();
    });

    test.each([
      ['a call without content type', without('/criresize.v1alpha1.ResizeService/ListPods', 'content-type')],
      ['a call of an unknown method', request('/criresize.v1alpha1.ResizeService/None')],
      ['a call with an invalid timeout', request('/x/y', [{ name: 'grpc-timeout', value: 'soon' }])],
    ])('H1: the process survives resets in the same write on the resize API socket: %s', async (_, fields) => {
      await daemon.startBackend();
      const api = join(daemon.folder, 'resize.sock');
      const program = daemon.start('--resize-listen', `unix://${api}`);
      await program.logged('serving');
      // The API is served last, and its server is loaded by the first call.
      const check = (): Promise<number> => daemon.connect(api).code('/grpc.health.v1.Health/Check');
      await vi.waitFor(async () => expect(await check()).toBe(0), LONG_WAIT);
      await sendAndReset(api, [fields, fields, fields]);
      expect(await check()).toBe(0);
      expect(program.log.filter(({ level }) => level === 'error')).toEqual([]);
      expect(program.process.exitCode).toBeNull();
    });
  });

  test('a handled call without content type gets the status of the backend', async () => {
    await daemon.startBackend();
    const program = daemon.start();
    await program.logged('serving');
    const { connect } = await import('node:http2');
    const statusOf = async (path: string): Promise<unknown> => {
      const session = connect('http://localhost', { createConnection: () => createConnection(path) });
      const stream = session.request({ ':method': 'POST', ':path': HANDLED });
      stream.end();
      const [answer] = (await once(stream, 'response')) as [Record<string, unknown>];
      session.destroy();
      return answer[':status'];
    };
    expect(await statusOf(daemon.listen)).toBe(await statusOf(daemon.backendPath));
  });
});

describe('long requests', () => {
  /** Returns an UpdateContainerResourcesRequest of this many bytes: an id and an unknown field. */
  function updateOf(size: number): string {
    const id = Buffer.from([0x0a, 1, 0x78]);
    const rest = size - id.length - 6;
    const unknown = Buffer.alloc(6 + rest, 'a');
    unknown.set([0x82, 1, 0x80 | (rest & 0x7f), 0x80 | ((rest >> 7) & 0x7f), 0x80 | ((rest >> 14) & 0x7f), rest >> 21]);
    return Buffer.concat([id, unknown]).toString('latin1');
  }

  test.each([
    ['16 MiB, which containerd accepts too, reaches its handler, which rejects it', 16 * MiB, status.INVALID_ARGUMENT],
    ['more than 16 MiB is rejected before', 16 * MiB + 1, status.RESOURCE_EXHAUSTED],
  ])('updates of up to 16 MiB reach their handler: an update of %s', async (_, size, code) => {
    await daemon.startBackend();
    const program = daemon.start();
    await program.logged('serving');
    expect(await daemon.connect().code('/runtime.v1.RuntimeService/UpdateContainerResources', updateOf(size))).toBe(
      code,
    );
  });
});

describe('pass-through mode', () => {
  // A shim that forwards every call: by configuration, and because its file is invalid.

  async function get(path: string): Promise<string> {
    const outgoing = httpRequest({ socketPath: join(daemon.folder, 'metrics.sock'), path });
    outgoing.end();
    const [response] = (await once(outgoing, 'response')) as [IncomingMessage];
    return text(response);
  }

  /** Returns what the shim answers to its own status call. */
  async function ownStatus(): Promise<Record<string, unknown>> {
    const response = await daemon.connect().call(SHIM_STATUS_PATH, '');
    return JSON.parse(response.slice(response.indexOf('{'))) as Record<string, unknown>;
  }

  function notifySocket(): NotifySocket {
    const socket = new NotifySocket(join(daemon.folder, 'notify.sock'));
    daemon.cleanUp(() => socket.close());
    return socket;
  }

  describe('intercept: false', () => {
    test('shows intercept: false in its own status, the status of systemd, the metrics and the status page', async () => {
      await daemon.startBackend();
      const systemd = notifySocket();
      const env = { NOTIFY_SOCKET: join(daemon.folder, 'notify.sock') };
      const metrics = `unix://${join(daemon.folder, 'metrics.sock')}`;
      const program = daemon.startWith({ env }, '--intercept=false', '--metrics-bind', metrics);
      await program.logged('metrics are served');
      expect(await ownStatus()).toEqual({
        version: expect.any(String) as string,
        connections: 1,
        ready: true,
        checks: [{ name: 'intercept', ready: true, says: 'off by configuration: every call is forwarded unchanged' }],
        passThrough: 'configured',
      });
      await systemd.waitFor('READY=1');
      expect(systemd.messages[0]).toContain('intercept is off by configuration: every call is forwarded unchanged');
      expect(await get('/metrics')).toMatch(/^cri_resize_shim_intercepting 0$/m);
      expect(await get('/')).toContain('intercept is off by configuration: every call is forwarded unchanged');
      expect(await get('/readyz')).toBe('ok');
      program.kill('SIGTERM');
      expect((await program.exited).code).toBe(0);
    });
  });

  test.each([
    ['by configuration', ['--intercept=false'], ''],
    ['because its file is invalid', [], 'logLevel: loud\n'],
  ])(
    'KEP-1287: a shim that intercepts nothing, %s, restores the memory.high that a killed shim has lowered',
    async (_why, flags, text) => {
      await daemon.startBackend();
      leaveHighs(daemon.folder);
      const places = ['--state-folder', join(daemon.folder, 'state'), '--cgroup-root', join(daemon.folder, 'cgroup')];
      const file = join(daemon.folder, 'config.yaml');
      writeFileSync(file, text);
      const env = { CRI_RESIZE_SHIM_INVALID_CONFIG: 'pass-through' };
      const records = readdirSync(join(daemon.folder, 'state'));
      const program = daemon.startWith({ env }, '--config', file, ...flags, ...places);
      await program.logged('serving');
      await expect.poll(() => highsIn(daemon.folder)).toEqual(restoredHighs);
      expect(readdirSync(join(daemon.folder, 'state'))).toContain(records[0]);
    },
  );

  describe('an invalid configuration file with pass-through enabled', () => {
    const env = { CRI_RESIZE_SHIM_INVALID_CONFIG: 'pass-through' };
    const config = (...lines: readonly string[]): string => {
      const file = join(daemon.folder, 'config.yaml');
      writeFileSync(file, [`listen: ${daemon.listen}`, ...lines, ''].join('\n'));
      mkdirSync(dirname(daemon.listen), { recursive: true });
      return file;
    };

    test('an invalid configuration forwards every call and is reported in status, log, metrics, health and page', async () => {
      await daemon.startBackend();
      const systemd = notifySocket();
      const metrics = `metricsBind: unix://${join(daemon.folder, 'metrics.sock')}`;
      const file = config(`containerRuntimeEndpoint: ${daemon.backendPath}`, metrics, 'logLevel: loud');
      const program = daemon.run(
        { env: { ...env, NOTIFY_SOCKET: join(daemon.folder, 'notify.sock') } },
        ...['--config', file, '--state-folder', join(daemon.folder, 'state')],
      );
      const problem = `${file}:4:1: logLevel: "loud" must be one of trace, debug, info, warn, error`;
      await program.logged('metrics are served');
      expect(await program.logged('configuration invalid: every call is forwarded unchanged')).toMatchObject({
        level: 'error',
        problems: [problem],
      });
      expect(program.stderr).toContain(`cri-resize-shim: ${problem}\n`);
      expect(await daemon.connect().call('/s/Echo', 'hello')).toBe('hello');
      const says = `invalid, so every call is forwarded unchanged: ${problem}`;
      expect(await ownStatus()).toMatchObject({
        ready: false,
        checks: [{ name: 'configuration', ready: false, says }],
        passThrough: 'invalid configuration',
      });
      await systemd.waitFor('READY=1');
      expect(systemd.messages[0]).toContain(`configuration is ${says}`);
      expect(await get('/metrics')).toMatch(/^cri_resize_shim_intercepting 0$/m);
      expect(await get('/metrics')).toMatch(/^cri_resize_shim_ready\{check="configuration"\} 0$/m);
      expect(await get('/readyz')).toContain('[-]configuration failed: invalid, so every call');
      expect(await get('/')).toContain('every call is forwarded unchanged');
    });

    test('an invalid configuration without an endpoint forwards calls to the containerd of the last start', async () => {
      await daemon.startBackend();
      const last = join(daemon.folder, 'target');
      writeFileSync(last, `CRI_RESIZE_SHIM_BYPASS_TO="${daemon.backendPath}"\n`);
      const file = config('a: [');
      const program = daemon.run(
        { env: { ...env, CRI_RESIZE_SHIM_BYPASS_FILE: last } },
        ...['--config', file, '--listen', daemon.listen],
      );
      expect(await program.logged('serving')).toMatchObject({ backend: daemon.backendPath });
      expect(await daemon.connect().call('/s/Echo', 'hello')).toBe('hello');
    });

    test('the report of a configuration with a thousand problems is bounded', async () => {
      await daemon.startBackend();
      const file = config(...Array.from({ length: 1000 }, (_, index) => `key${index}: 1`));
      const flags = ['--listen', daemon.listen, '--container-runtime-endpoint', daemon.backendPath];
      const program = daemon.run({ env }, '--config', file, ...flags);
      const { problems } = await program.logged('configuration invalid: every call is forwarded unchanged');
      expect(problems).toHaveLength(20);
      const { checks } = (await ownStatus()) as { checks: { says: string }[] };
      expect(checks[0]?.says.length).toBeLessThan(1100);
      expect(checks[0]?.says).toMatch(/; and 997 more$/);
    });

    test('an invalid configuration ends the start without pass-through, and an invalid flag ends it always', async () => {
      const file = config('logLevel: loud');
      expect(await daemon.run({}, '--config', file).exited).toMatchObject({ code: 1 });
      expect(await daemon.run({ env }, '--config', file, '--log-level=loud').exited).toMatchObject({ code: 2 });
    });
  });

  test('the status call of the shim is UNIMPLEMENTED in another runtime', async () => {
    await daemon.startBackend();
    const program = daemon.start('--intercept=false');
    await program.logged('serving');
    expect(await daemon.connect(daemon.backendPath).code(SHIM_STATUS_PATH)).toBe(12);
    // The fake backend answers no CRI calls, which the installer makes first.
    await expect(queryRuntime(daemon.listen)).rejects.toThrow('UNIMPLEMENTED');
  });
});

describe('notifications to systemd', () => {
  const systemd = new FakeSystemd(daemon);

  test('sends READY once it serves, WATCHDOG while it runs, and STOPPING with the shutdown timeout', async () => {
    await daemon.startBackend();
    const notifications = new NotifySocket(join(daemon.folder, 'notify.sock'));
    daemon.cleanUp(() => notifications.close());
    const descriptor = systemd.hold(systemd.cri);
    const env = { NOTIFY_SOCKET: notifications.name, WATCHDOG_USEC: '300000' };
    const program = systemd.start([['cri', descriptor]], env, '--shutdown-timeout', '90s');
    expect(await notifications.waitFor('READY=1')).toBe(`READY=1\nSTATUS=serving ${systemd.cri}`);
    expect(await daemon.connect(systemd.cri).call('/s/Echo', 'hello')).toBe('hello');
    await notifications.waitFor('WATCHDOG=1');
    program.kill('SIGTERM');
    expect(await notifications.waitFor('STOPPING=1')).toBe(
      'STOPPING=1\nEXTEND_TIMEOUT_USEC=105000000\nSTATUS=waiting for running calls',
    );
    expect(await program.exited).toEqual({ code: 0, signal: null });
  });
});
