import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import type { IncomingMessage } from 'node:http';
import { once } from 'node:events';
import { describe, expect, test } from 'vitest';
import { queryRuntime } from '../../src/install/host/query-runtime.ts';
import { SHIM_STATUS_PATH } from '../../src/runtime/backend.ts';
import { NotifySocket } from '../support/daemon/notify-socket.ts';
import { TestDaemon } from '../support/daemon/test-daemon.ts';
import { highsIn, leaveHighs, restoredHighs } from '../support/resize/left-highs.ts';

// A shim that forwards every call: by configuration, and because its file is invalid.

const daemon = new TestDaemon();

async function get(path: string): Promise<string> {
  const outgoing = request({ socketPath: join(daemon.folder, 'metrics.sock'), path });
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
  // The fake backend answers no CRI call: the installer asks those first.
  await expect(queryRuntime(daemon.listen)).rejects.toThrow('UNIMPLEMENTED');
});
