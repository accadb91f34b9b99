import { once } from 'node:events';
import { lstatSync, mkdirSync, mkdtempSync, readFileSync, rmSync, unlinkSync, writeFileSync } from 'node:fs';
import { type IncomingMessage, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { FakeBackend, RawClient } from '../support/fake-backend.ts';
import { Program, buildProgram } from '../support/daemon-program.ts';
import { type ScrapedFamily, readMetrics } from '../support/metrics-text.ts';

let file: string;
let folder: string;
const open: (() => unknown)[] = [];

beforeAll(async () => {
  file = await buildProgram();
}, 60_000);
afterAll(() => unlinkSync(file));
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'metrics-'));
  mkdirSync(join(folder, 'containerd'));
  mkdirSync(join(folder, 'cgroup'));
  writeFileSync(join(folder, 'cgroup/cgroup.controllers'), 'cpu memory\n');
});
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
  rmSync(folder, { recursive: true });
});

async function start(...args: string[]): Promise<Program> {
  const path = join(folder, 'containerd/containerd.sock');
  const backend = await FakeBackend.listen(path);
  open.push(() => backend.close());
  const listen = ['--listen', join(folder, 'shim/shim.sock'), '--container-runtime-endpoint', path];
  const places = ['--cgroup-root', join(folder, 'cgroup'), '--state-folder', join(folder, 'state')];
  const program = new Program(file, [...listen, ...places, ...args]);
  open.push(async () => {
    program.kill('SIGKILL');
    await program.exited;
  });
  return program;
}

async function call(path: string): Promise<void> {
  const client = new RawClient(join(folder, 'shim/shim.sock'));
  await client.call(path, '').catch(() => undefined);
  client.close();
}

async function get(where: object, path: string): Promise<{ status: number | undefined; body: string }> {
  const asked = request({ ...where, path, agent: false });
  asked.end();
  const [response] = (await once(asked, 'response')) as [IncomingMessage];
  let body = '';
  for await (const chunk of response.setEncoding('utf8')) body += chunk as string;
  return { status: response.statusCode, body };
}

const scrape = async (where: object): Promise<ReadonlyMap<string, ScrapedFamily>> =>
  readMetrics((await get(where, '/metrics')).body);

/** Where a program that was given port 0 serves. */
async function placeOf(program: Program): Promise<{ host: string; port: number }> {
  const { address } = await program.logged('metrics are served');
  const { hostname, port } = new URL(String(address));
  return { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port) };
}

/** The rows of docs/metrics.md. */
function documented(): { name: string; type: string; labels: string[]; help: string }[] {
  const rows = readFileSync('docs/metrics.md', 'utf8').matchAll(/^\| `([a-z_]+)` \| (\w+) \| (.*?) \| (.*) \|$/gm);
  return [...rows].map(([, name = '', type = '', labels = '', help = '']) => ({
    ...{ name, type, help },
    labels: [...labels.matchAll(/`(\w+)`/g)].map(([, label]) => label!),
  }));
}

describe('a program with --metrics-bind', () => {
  test('tells what docs/metrics.md says, no less and no more', async () => {
    const place = await placeOf(await start('--metrics-bind', '127.0.0.1:0'));
    await call('/runtime.v1.RuntimeService/Status');
    await call('/runtime.v1.RuntimeService/RuntimeConfig');
    await call('/s/Echo');
    const scraped = await scrape(place);
    expect([...scraped].map(([name, { type, help }]) => ({ name, type, help }))).toEqual(
      documented().map(({ name, type, help }) => ({ name, type, help })),
    );
    const own = (sample: Readonly<Record<string, string>>): string[] =>
      Object.keys(sample).filter((label) => label !== 'le');
    for (const { name, labels } of documented())
      for (const sample of scraped.get(name)?.samples ?? []) expect(own(sample.labels), name).toEqual(labels);
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

  test('is ready once the backend is there, and not without it', async () => {
    const program = await start('--metrics-bind', '[::1]:0');
    const place = await placeOf(program);
    await expect.poll(() => get(place, '/readyz')).toMatchObject({ status: 200, body: 'ok' });
    await open.shift()?.();
    await expect.poll(() => get(place, '/readyz')).toMatchObject({ status: 500 });
    expect((await get(place, '/readyz')).body).toContain('[-]backend failed: not connected');
    expect((await get(place, '/livez')).status).toBe(200);
  });

  test('serves at a unix socket that is for its own user, beside its others', async () => {
    const socketPath = join(folder, 'shim/metrics.sock');
    const program = await start('--metrics-bind', `unix://${socketPath}`, '--intercept=false');
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

  test('serves calls where the address is taken, and says so', async () => {
    const taken = createServer().listen({ host: '127.0.0.1', port: 0 });
    await once(taken, 'listening');
    open.push(() => taken.close());
    const { port } = taken.address() as { port: number };
    const program = await start('--metrics-bind', `127.0.0.1:${port}`);
    const { level, bind, error } = await program.logged('metrics are not served');
    expect([level, bind]).toEqual(['error', `http://127.0.0.1:${port}`]);
    expect(error).toContain('EADDRINUSE');
    await call('/s/Echo');
    program.kill('SIGTERM');
    expect(await program.exited).toMatchObject({ code: 0 });
    expect(program.log.at(-1)).toMatchObject({ msg: 'stopped', passedCalls: 1 });
  });

  test('refuses to be seen from elsewhere', async () => {
    const program = await start('--metrics-bind', '0.0.0.0:9467');
    expect(await program.exited).toMatchObject({ code: 2 });
    expect(program.stderr).toMatch(/--metrics-bind: "0\.0\.0\.0:9467" is not a loopback address/);
  });
});

test('without --metrics-bind nothing listens but its sockets', async () => {
  const program = await start();
  await program.logged('serving');
  expect(program.log.map(({ msg }) => msg).filter((msg) => msg.includes('metrics'))).toEqual([]);
});
