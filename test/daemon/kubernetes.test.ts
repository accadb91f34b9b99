import { mkdirSync, mkdtempSync, rmSync, unlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { once } from 'node:events';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { FakeBackend, RawClient } from '../support/fake-backend.ts';
import { Program, buildProgram } from '../support/daemon-program.ts';
import { ApiServer } from '../support/fake-api-server.ts';

let file: string;
let folder: string;
let listen: string;
let kubeconfig: string;
let server: ApiServer;
const open: (() => unknown)[] = [];

beforeAll(async () => {
  file = await buildProgram();
}, 60_000);
afterAll(() => unlinkSync(file));

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'kubernetes-program-'));
  mkdirSync(join(folder, 'containerd'));
  listen = join(folder, 'shim/shim.sock');
  kubeconfig = join(folder, 'kubeconfig');
  const backend = await FakeBackend.listen(join(folder, 'containerd/containerd.sock'));
  open.push(() => backend.close());
  server = await new ApiServer().start();
  open.push(() => server.stop());
});
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
  rmSync(folder, { recursive: true });
});

function start(...args: string[]): Program {
  const backend = join(folder, 'containerd/containerd.sock');
  const program = new Program(file, ['--listen', listen, '--container-runtime-endpoint', backend, ...args]);
  open.push(async () => {
    program.kill('SIGKILL');
    await program.exited;
  });
  return program;
}

const withKubernetes = (...args: string[]): Program => start('--kubeconfig', kubeconfig, ...args);

async function answers(): Promise<void> {
  const client = new RawClient(listen);
  open.push(() => client.close());
  expect(await client.call('/s/Echo', 'hello')).toBe('hello');
}

describe('the program with --kubeconfig', () => {
  test('watches the pods of the node that the host name names, and says so', async () => {
    server.kubeconfig(kubeconfig);
    const node = hostname().toLowerCase();
    const line = await withKubernetes().logged('watch of pod annotations started');
    expect(line).toMatchObject({ level: 'info', node });
    expect(server.of('watch')[0]?.query['fieldSelector']).toBe(`spec.nodeName=${node}`);
  });

  test('asks for the node that --node-name names', async () => {
    server.kubeconfig(kubeconfig);
    await withKubernetes('--node-name', 'node-7').logged('watch of pod annotations started');
    expect(server.of('watch')[0]?.query['fieldSelector']).toBe('spec.nodeName=node-7');
  });

  test('that is refused (401): one line, no token in it, and calls pass', async () => {
    server.kubeconfig(kubeconfig, { token: 'hunter2-wrong' });
    const program = withKubernetes('--log-level=trace');
    expect(await program.logged('watch of pod annotations failed; retrying')).toMatchObject({
      level: 'warn',
      error: 'HTTP 401: Unauthorized',
    });
    await answers();
    await server.until(() => server.of('list').length >= 3);
    expect(program.log.filter(({ msg }) => msg.startsWith('watch of pod annotations'))).toHaveLength(1);
    program.kill('SIGTERM');
    expect(await program.exited).toEqual({ code: 0, signal: null });
    expect(program.stderr).not.toContain('hunter2');
  });

  test('that cannot be read yet keeps nobody waiting, and is read when it is there', async () => {
    const program = withKubernetes();
    expect(await program.logged('watch of pod annotations failed; retrying')).toMatchObject({
      error: `kubeconfig ${kubeconfig}: cannot be read (ENOENT)`,
    });
    await answers();
    server.kubeconfig(kubeconfig);
    await program.logged('watch of pod annotations started');
  });

  test('whose server takes connections and never answers: it starts, serves and stops at once', async () => {
    const silent = createServer().listen(0, '127.0.0.1');
    await once(silent, 'listening');
    open.push(() => silent.close());
    const { port } = silent.address() as { port: number };
    const cluster = { server: `http://127.0.0.1:${port}`, 'insecure-skip-tls-verify': true };
    const config = {
      'current-context': 'a',
      contexts: [{ name: 'a', context: { cluster: 'a', user: 'a' } }],
      clusters: [{ name: 'a', cluster }],
      users: [{ name: 'a', user: { token: 'x' } }],
    };
    writeFileSync(kubeconfig, JSON.stringify(config));
    const connected = once(silent, 'connection');
    const program = withKubernetes();
    await connected;
    await answers();
    const asked = Date.now();
    program.kill('SIGTERM');
    expect(await program.exited).toEqual({ code: 0, signal: null });
    expect(Date.now() - asked).toBeLessThan(10_000);
    expect(program.log.filter(({ level }) => level === 'error')).toEqual([]);
  });
});

test('without it the program asks no API server, wherever one may be', async () => {
  server.kubeconfig(kubeconfig);
  const program = start();
  await program.logged('registry compared with the backend');
  await answers();
  program.kill('SIGTERM');
  expect(await program.exited).toEqual({ code: 0, signal: null });
  expect(server.asked).toEqual([]);
});
