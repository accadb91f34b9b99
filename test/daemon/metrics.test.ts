import { once } from 'node:events';
import { lstatSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { type IncomingMessage, request } from 'node:http';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { beforeEach, describe, expect, test } from 'vitest';
import type { Program } from '../support/daemon/daemon-program.ts';
import type { FakeBackend } from '../support/daemon/test-daemon.ts';
import { TestDaemon } from '../support/daemon/test-daemon.ts';
import { LONG_WAIT } from '../support/long-wait.ts';
import { readMetrics, type ScrapedFamily } from '../support/metrics-text.ts';

const daemon = new TestDaemon();
let backend: FakeBackend;

beforeEach(async () => {
  backend = await daemon.startBackend();
  mkdirSync(join(daemon.folder, 'cgroup'));
  writeFileSync(join(daemon.folder, 'cgroup/cgroup.controllers'), 'cpu memory\n');
});

function start(...args: string[]): Program {
  const { folder } = daemon;
  return daemon.start('--cgroup-root', join(folder, 'cgroup'), '--state-folder', join(folder, 'state'), ...args);
}

async function call(path: string): Promise<void> {
  await daemon
    .connect()
    .call(path, '')
    .catch(() => undefined);
}

async function get(at: object, path: string): Promise<{ status: number | undefined; body: string }> {
  const sent = request({ ...at, path, agent: false });
  sent.end();
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  let body = '';
  for await (const chunk of response.setEncoding('utf8')) body += chunk as string;
  return { status: response.statusCode, body };
}

const scrape = async (at: object): Promise<ReadonlyMap<string, ScrapedFamily>> =>
  readMetrics((await get(at, '/metrics')).body);

/** Returns the address of a daemon that was started with port 0. */
async function addressOf(program: Program): Promise<{ host: string; port: number }> {
  const { address } = await program.logged('metrics are served');
  const { hostname, port } = new URL(String(address));
  return { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port) };
}

/** Returns the rows of docs/metrics.md. */
function documented(): { name: string; type: string; labels: string[]; help: string }[] {
  const rows = readFileSync('docs/metrics.md', 'utf8').matchAll(/^\| `([a-z_]+)` \| (\w+) \| (.*?) \| (.*) \|$/gm);
  return [...rows].map(([, name = '', type = '', labels = '', help = '']) => ({
    name,
    type,
    help,
    labels: [...labels.matchAll(/`(\w+)`/g)].map(([, label]) => label!),
  }));
}

describe('a daemon with --metrics-bind', () => {
  test('serves exactly the metrics that docs/metrics.md lists', async () => {
    const at = await addressOf(start('--metrics-bind', '127.0.0.1:0'));
    await call('/runtime.v1.RuntimeService/Status');
    await call('/runtime.v1.RuntimeService/RuntimeConfig');
    await call('/s/Echo');
    const scraped = await scrape(at);
    expect([...scraped].map(([name, { type, help }]) => ({ name, type, help }))).toEqual(
      documented().map(({ name, type, help }) => ({ name, type, help })),
    );
    const labelsOf = (sample: Readonly<Record<string, string>>): string[] =>
      Object.keys(sample).filter((label) => label !== 'le');
    for (const { name, labels } of documented())
      for (const sample of scraped.get(name)?.samples ?? []) expect(labelsOf(sample.labels), name).toEqual(labels);
    const count = (name: string, labels: object): number | undefined =>
      scraped
        .get(`cri_resize_shim_${name}`)
        ?.samples.find(
          (sample) => !sample.name.endsWith('_sum') && JSON.stringify(sample.labels) === JSON.stringify(labels),
        )?.value;
    expect(count('passed_calls_total', { method: '/s/Echo', outcome: 'answered' })).toBe(1);
    const status = { method: '/runtime.v1.RuntimeService/Status', code: 'OK' };
    expect(count('call_duration_seconds', status)).toBe(1);
    expect(count('call_added_seconds', { method: status.method })).toBe(1);
  });

  test('is ready while the backend is connected, and not ready but alive after the connection is lost', async () => {
    const program = start('--metrics-bind', '[::1]:0');
    const at = await addressOf(program);
    await expect.poll(() => get(at, '/readyz'), LONG_WAIT).toMatchObject({ status: 200, body: 'ok' });
    backend.close();
    await expect.poll(() => get(at, '/readyz'), LONG_WAIT).toMatchObject({ status: 500 });
    expect((await get(at, '/readyz')).body).toContain('[-]backend failed: not connected');
    expect((await get(at, '/livez')).status).toBe(200);
  });

  test('serves metrics on a unix socket with access for its own user only', async () => {
    const socketPath = join(daemon.folder, 'shim/metrics.sock');
    const program = start('--metrics-bind', `unix://${socketPath}`, '--intercept=false');
    expect(await program.logged('metrics are served')).toMatchObject({ address: `unix://${socketPath}` });
    expect(lstatSync(socketPath).mode & 0o777).toBe(0o600);
    expect(await get({ socketPath, headers: { host: 'anything' } }, '/readyz?verbose')).toMatchObject({
      status: 200,
      body: '[+]ping ok\n[+]intercept ok\nreadyz check passed\n',
    });
    expect((await scrape({ socketPath })).get('cri_resize_shim_pods')?.samples).toMatchObject([{ value: 0 }]);
    program.kill('SIGTERM');
    expect(await program.exited).toMatchObject({ code: 0 });
    expect(lstatSync(socketPath, { throwIfNoEntry: false })).toBeUndefined();
  });

  test.each(['127.0.0.1:0', 'unix'])(
    'with --metrics-token-file, requests at %s need the token, and the log does not contain it',
    async (address) => {
      const file = join(daemon.folder, 'token');
      const socketPath = join(daemon.folder, 'shim/metrics.sock');
      writeFileSync(file, 'hunter2-hunter2-hunter2\n', { mode: 0o600 });
      const bind = address === 'unix' ? `unix://${socketPath}` : address;
      const program = start('--metrics-bind', bind, '--metrics-token-file', file, '--log-level', 'trace');
      const at = address === 'unix' ? { socketPath } : await addressOf(program);
      await program.logged('metrics are served');
      const status = async (path: string, token?: string): Promise<number | undefined> =>
        (await get({ ...at, headers: token === undefined ? {} : { authorization: `Bearer ${token}` } }, path)).status;
      for (const path of ['/metrics', '/', '/livez', '/healthz', '/readyz', '/none']) {
        expect(await status(path), path).toBe(401);
        expect(await status(path, 'hunter2-hunter2-wrong-1'), path).toBe(401);
        expect(await status(path, 'hunter2-hunter2-hunter2'), path).not.toBe(401);
      }
      expect(await status('/metrics', 'hunter2-hunter2-hunter2')).toBe(200);
      program.kill('SIGTERM');
      expect(await program.exited).toMatchObject({ code: 0 });
      expect(program.stderr).not.toContain('hunter2');
    },
  );

  test('rejects requests for metrics if the token file is unusable, and serves calls', async () => {
    const program = start('--metrics-bind', '127.0.0.1:0', '--metrics-token-file', join(daemon.folder, 'none'));
    const at = await addressOf(program);
    expect((await get(at, '/metrics')).status).toBe(503);
    expect(await program.logged('token file of metrics cannot be used; requests are rejected')).toMatchObject({
      level: 'warn',
      error: 'it cannot be read (ENOENT)',
    });
    await call('/s/Echo');
    program.kill('SIGTERM');
    expect(await program.exited).toMatchObject({ code: 0 });
    expect(program.log.find(({ msg }) => msg === 'stopped')).toMatchObject({ passedCalls: 1 });
  });

  test('logs that the address for metrics is in use, and serves calls without metrics', async () => {
    const taken = createServer().listen({ host: '127.0.0.1', port: 0 });
    await once(taken, 'listening');
    daemon.cleanUp(() => taken.close());
    const { port } = taken.address() as { port: number };
    const program = start('--metrics-bind', `127.0.0.1:${port}`);
    const { level, bind, error } = await program.logged('metrics are not served');
    expect([level, bind]).toEqual(['error', `http://127.0.0.1:${port}`]);
    expect(error).toContain('EADDRINUSE');
    await call('/s/Echo');
    program.kill('SIGTERM');
    expect(await program.exited).toMatchObject({ code: 0 });
    expect(program.log.find(({ msg }) => msg === 'stopped')).toMatchObject({ passedCalls: 1 });
  });

  test('rejects an address for metrics that is not loopback', async () => {
    const program = start('--metrics-bind', '0.0.0.0:9467');
    expect(await program.exited).toMatchObject({ code: 2 });
    expect(program.stderr).toMatch(/--metrics-bind: "0\.0\.0\.0:9467" is not a loopback address/);
  });
});

test('a daemon without --metrics-bind serves no metrics', async () => {
  const program = start();
  await program.logged('serving');
  expect(program.log.map(({ msg }) => msg).filter((msg) => msg.includes('metrics'))).toEqual([]);
});
