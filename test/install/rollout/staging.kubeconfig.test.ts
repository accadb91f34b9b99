import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { provideKubeconfig, withNodeName } from '../../../src/install/rollout/staging.ts';
import { openConnection } from '../../../src/kubernetes/client/connection.ts';
import { makeCertificate } from '../../support/kubernetes/certificate.ts';

let folder: string;
let to: string;
const { certificate } = makeCertificate('cluster', '127.0.0.1');
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'credentials-'));
  to = join(folder, 'kubeconfig');
  writeFileSync(join(folder, 'token'), 'secret-token\n');
  writeFileSync(join(folder, 'ca.crt'), certificate);
});
afterEach(() => rmSync(folder, { recursive: true }));
const at = (host: string): NodeJS.ProcessEnv => ({ KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: '6443' });

describe('the kubeconfig of the shim', () => {
  test.each([
    ['10.96.0.1', 'https://10.96.0.1:6443/'],
    ['fd00::1', 'https://[fd00::1]:6443/'],
  ])('the shim can use the kubeconfig with the API server at %s', async (host, server) => {
    await provideKubeconfig(folder, to, at(host));
    const { server: found, options } = await openConnection(to);
    expect(found.href).toBe(server);
    expect(options.headers).toEqual({ Authorization: 'Bearer secret-token' });
    expect(String(options.ca)).toBe(certificate);
  });

  test('only the owner can read the kubeconfig of the shim, also if it replaces another file', async () => {
    writeFileSync(to, 'old', { mode: 0o644 });
    await provideKubeconfig(folder, to, at('10.96.0.1'));
    expect(statSync(to).mode & 0o777).toBe(0o600);
  });

  test('the kubeconfig of the shim is not written without the address of the API server or without the token', async () => {
    await expect(provideKubeconfig(folder, to, {})).rejects.toThrow('KUBERNETES_SERVICE_HOST is not set');
    rmSync(join(folder, 'token'));
    await expect(provideKubeconfig(folder, to, at('10.96.0.1'))).rejects.toThrow('ENOENT');
    expect(existsSync(to)).toBe(false);
  });
});

test.each([
  ['kubeconfig: /k\n', 'kubeconfig: /k\nnodeName: node-1\n'],
  ['# a comment\nkubeconfig: /k\n', '# a comment\nkubeconfig: /k\nnodeName: node-1\n'],
  ['nodeName: other\n', 'nodeName: other\n'],
  ['- a list\n', '- a list\n'],
  ['a: b: c\n', 'a: b: c\n'],
])('the configuration %j gets the name of the node: %j', (text, expected) => {
  expect(withNodeName(text, 'node-1')).toBe(expected);
});
