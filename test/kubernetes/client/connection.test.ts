import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { apiOf, readText } from '../../../src/kubernetes/client/api.ts';
import { openConnection } from '../../../src/kubernetes/client/connection.ts';
import { wordsOf } from '../../../src/kubernetes/client/errors.ts';
import { FakeApiServer, makeCertificate } from '../../support/kubernetes/fake-api-server.ts';

let folder: string;
let config: string;
let server: FakeApiServer;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'connection-'));
  config = join(folder, 'config');
  server = await new FakeApiServer().start();
});
afterEach(async () => {
  await server.stop();
  rmSync(folder, { recursive: true });
});

async function list(): Promise<string> {
  const signal = AbortSignal.timeout(120_000);
  const api = apiOf(() => openConnection(config));
  const response = await api({ method: 'GET', path: '/api/v1/pods', query: { limit: '1' }, idleMs: 60_000, signal });
  return (JSON.parse(await readText(response, 1000)) as { kind: string }).kind;
}
const errorText = async (): Promise<string> =>
  list().then(
    () => 'none',
    (error: unknown) => wordsOf(error),
  );

const LIST = 'PodList';

describe('a kubeconfig', () => {
  test('a kubeconfig with a token is accepted, and a wrong token leads to 401', async () => {
    server.kubeconfig(config);
    expect(await list()).toBe(LIST);
    server.kubeconfig(config, { token: 'wrong' });
    expect(await errorText()).toBe('HTTP 401: Unauthorized');
  });

  test('the token file of a kubeconfig is read for each connection, and its newline is ignored', async () => {
    const file = join(folder, 'token');
    writeFileSync(file, 'old\n');
    server.kubeconfig(config, { 'auth-provider': { name: 'tokenFile', config: { tokenFile: file } } });
    expect(await errorText()).toBe('HTTP 401: Unauthorized');
    writeFileSync(file, `${server.token}\n`);
    expect(await list()).toBe(LIST);
    server.kubeconfig(config, { tokenFile: file });
    expect(await list()).toBe(LIST);
  });

  test('a kubeconfig that is missing, invalid or without a server leads to an error without its content', async () => {
    expect(await errorText()).toBe(`kubeconfig ${config}: cannot be read (ENOENT)`);
    writeFileSync(config, 'users: [{name: a, user: {token: hunter2}\n');
    expect(await errorText()).toBe(`kubeconfig ${config}: cannot be read (BAD_INDENT)`);
    writeFileSync(config, '{}');
    expect(await errorText()).toBe(`kubeconfig ${config}: its context has no server`);
    server.kubeconfig(config, { 'client-certificate': join(folder, 'none.pem') });
    expect(await errorText()).toBe(`kubeconfig ${config}: its server or user settings are invalid (ENOENT)`);
  });

  test('rejects a kubeconfig whose user is a program', async () => {
    const program = join(folder, 'program');
    writeFileSync(program, `#!/bin/sh\ntouch ${folder}/was-run\n`);
    chmodSync(program, 0o755);
    const refused = `kubeconfig ${config}: its user runs a program (exec), which is not supported; use a token, a token file or a certificate`;
    server.kubeconfig(config, { exec: { apiVersion: 'client.authentication.k8s.io/v1', command: program } });
    expect(await errorText()).toBe(refused);
    server.kubeconfig(config, { 'auth-provider': { name: 'gcp', config: { 'cmd-path': program } } });
    expect(await errorText()).toBe(refused);
  });
});

describe('a TLS connection', () => {
  const [ours, client, other] = ['api', 'shim', 'other'].map((name) => makeCertificate(name));

  test('a TLS connection accepts only a server that the kubeconfig trusts', async () => {
    const secure = await new FakeApiServer({ server: ours! }).start();
    secure.kubeconfig(config);
    expect(await list()).toBe(LIST);
    const text = readFileSync(config, 'utf8');
    const impostor = await new FakeApiServer({ server: other! }).start();
    writeFileSync(config, text.replace(secure.url, impostor.url));
    expect(await errorText()).toMatch(/^(DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN)$/);
    await impostor.stop();
    await secure.stop();
  });

  test('a TLS connection uses the client certificate of the kubeconfig', async () => {
    const secure = await new FakeApiServer({ server: ours!, client: client! }).start();
    const file = (name: string, text: string): string => {
      writeFileSync(join(folder, name), text);
      return join(folder, name);
    };
    secure.kubeconfig(config, {
      'client-certificate': file('cert.pem', client!.certificate),
      'client-key': file('key.pem', client!.key),
    });
    expect(await list()).toBe(LIST);
    secure.kubeconfig(config, {});
    expect(await errorText()).not.toBe('none');
    await secure.stop();
  });
});
