import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, test } from 'vitest';
import type { Program } from '../support/daemon/daemon-program.ts';
import { TestDaemon } from '../support/daemon/test-daemon.ts';
import { FakeApiServer } from '../support/kubernetes/fake-api-server.ts';

const daemon = new TestDaemon();
let kubeconfig: string;
let server: FakeApiServer;

beforeEach(async () => {
  kubeconfig = join(daemon.folder, 'kubeconfig');
  await daemon.startBackend();
  server = await new FakeApiServer().start();
  daemon.cleanUp(() => server.stop());
});

const startWithKubeconfig = (...args: string[]): Program => daemon.start('--kubeconfig', kubeconfig, ...args);

async function expectAnswer(): Promise<void> {
  expect(await daemon.connect().call('/s/Echo', 'hello')).toBe('hello');
}

describe('a daemon with --kubeconfig', () => {
  test('watches the pods of the node with its host name, and logs the name of the node', async () => {
    server.kubeconfig(kubeconfig);
    const node = hostname().toLowerCase();
    const line = await startWithKubeconfig().logged('watch of pod annotations started');
    expect(line).toMatchObject({ level: 'info', node });
    expect(server.of('watch')[0]?.query['fieldSelector']).toBe(`spec.nodeName=${node}`);
  });

  test('watches the pods of the node that --node-name names', async () => {
    server.kubeconfig(kubeconfig);
    await startWithKubeconfig('--node-name', 'node-7').logged('watch of pod annotations started');
    expect(server.of('watch')[0]?.query['fieldSelector']).toBe('spec.nodeName=node-7');
  });

  test('logs a pod object that is too large, and starts the watch', async () => {
    server.kubeconfig(kubeconfig);
    const spec = { containers: [{ name: 'a', args: ['<'.repeat(2_200_000)] }] };
    const names = { uid: 'uid-huge', namespace: 'tenant', name: 'huge' };
    server.set({ ...names, nodeName: 'node-7', annotations: {}, spec });
    const program = startWithKubeconfig('--node-name', 'node-7');
    const fields = { level: 'warn', namespace: 'tenant', pod: 'huge', uid: 'uid-huge', reason: 'too_large' };
    expect(await program.logged('pod object ignored: it is too large')).toMatchObject(fields);
    await program.logged('watch of pod annotations started');
  });

  test('logs one line without the token if the API server rejects the token, and forwards calls', async () => {
    server.kubeconfig(kubeconfig, { token: 'hunter2-wrong' });
    const program = startWithKubeconfig('--log-level=trace');
    expect(await program.logged('watch of pod annotations failed; retrying')).toMatchObject({
      level: 'warn',
      error: 'HTTP 401: Unauthorized',
    });
    await expectAnswer();
    await server.until(() => server.of('list').length >= 3);
    expect(program.log.filter(({ msg }) => msg.startsWith('watch of pod annotations'))).toHaveLength(1);
    program.kill('SIGTERM');
    expect(await program.exited).toEqual({ code: 0, signal: null });
    expect(program.stderr).not.toContain('hunter2');
  });

  test('serves calls before the kubeconfig exists, and reads the kubeconfig once it exists', async () => {
    const program = startWithKubeconfig();
    expect(await program.logged('watch of pod annotations failed; retrying')).toMatchObject({
      error: `kubeconfig ${kubeconfig}: cannot be read (ENOENT)`,
    });
    await expectAnswer();
    server.kubeconfig(kubeconfig);
    await program.logged('watch of pod annotations started');
  });

  test('starts, serves and stops at once if the API server accepts connections and never completes a response', async () => {
    const endless = createServer((socket) => {
      // The request keeps sending data, so that it does not time out for lack of data.
      const timer = setInterval(() => socket.write('a'), 1000);
      socket.on('error', () => undefined).on('close', () => clearInterval(timer));
      socket.write('HTTP/1.1 200 OK\r\na: ');
    }).listen(0, '127.0.0.1');
    await once(endless, 'listening');
    daemon.cleanUp(() => endless.close());
    const { port } = endless.address() as { port: number };
    const cluster = { server: `http://127.0.0.1:${port}`, 'insecure-skip-tls-verify': true };
    const config = {
      'current-context': 'a',
      contexts: [{ name: 'a', context: { cluster: 'a', user: 'a' } }],
      clusters: [{ name: 'a', cluster }],
      users: [{ name: 'a', user: { token: 'x' } }],
    };
    writeFileSync(kubeconfig, JSON.stringify(config));
    const connected = once(endless, 'connection');
    // No stop that waits for something ends within the time of a test.
    const program = startWithKubeconfig('--shutdown-timeout=10m');
    await connected;
    await expectAnswer();
    program.kill('SIGTERM');
    expect(await program.exited).toEqual({ code: 0, signal: null });
    expect(program.log.filter(({ level }) => level === 'error')).toEqual([]);
  });
});

test('a daemon without --kubeconfig calls no API server', async () => {
  server.kubeconfig(kubeconfig);
  const program = daemon.start();
  await program.logged('registry compared with the backend');
  await expectAnswer();
  program.kill('SIGTERM');
  expect(await program.exited).toEqual({ code: 0, signal: null });
  expect(server.asked).toEqual([]);
});
