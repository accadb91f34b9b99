import { spawn, spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { provideKubeconfig, withNodeName } from '../../../src/install/host/provided-kubeconfig.ts';
import { kubeconfigIn, programIn, stage, stagingOf, unstage } from '../../../src/install/rollout/staging.ts';
import { openConnection } from '../../../src/kubernetes/client/connection.ts';
import { makeCertificate } from '../../support/kubernetes/fake-api-server.ts';

let folder: string;

describe('staged files', () => {
  let staging: string;
  /** The kubeconfig that the installed shim uses. */
  let live: string;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'staging-'));
    staging = join(folder, 'staging');
    live = join(staging, 'kubeconfig');
    const chunks = join(folder, 'image/dist/chunks');
    const koffi = ['package.json', 'LICENSE.txt', 'index.js', 'src/koffi/index.js', 'src/koffi/src/static.js'];
    for (const path of ['package.json', 'LICENSE', 'dist/cri-resize-shim.js', 'dist/resizectl.js', 'dist/resizectl.1'])
      put(`image/${path}`, '');
    for (const path of koffi) put(`image/node_modules/koffi/${path}`, '');
    put(`image/node_modules/@koromix/koffi-linux-${process.arch}/index.js`, '');
    put('image/proto/a.proto', '');
    put('image/systemd/cri-resize-shim.service', '');
    mkdirSync(chunks);
    put('config.yaml', 'logLevel: debug\n');
    put('credentials/token', 'fresh');
    put('credentials/ca.crt', 'ca');
    put('staging/kubeconfig', 'in use');
    vi.stubEnv('KUBERNETES_SERVICE_HOST', '10.96.0.1');
  });

  afterEach(() => {
    vi.unstubAllEnvs();
    rmSync(folder, { recursive: true });
  });

  function put(path: string, text: string): void {
    mkdirSync(join(folder, path, '..'), { recursive: true });
    writeFileSync(join(folder, path), text);
  }

  /** Stages credentials as a pod whose process has this id. Returns the folder. */
  async function staged(credentials: string, pid = process.pid): Promise<string> {
    const own = stagingOf(staging, pid);
    await stage({
      ...{ from: join(folder, 'image'), own, config: join(folder, 'config.yaml'), nodeName: 'a' },
      credentials: credentials && join(folder, credentials),
    });
    return own;
  }
  /** The id of a process that has ended. */
  const ended = (): number => spawnSync('true').pid;

  test.each(['', 'credentials'])(
    'staging with credentials %j does not change the kubeconfig of the installed shim',
    async (given) => {
      const own = await staged(given);
      expect(readFileSync(live, 'utf8')).toBe('in use');
      expect(existsSync(kubeconfigIn(own))).toBe(given !== '');
      expect(readFileSync(join(programIn(own), 'package.json'), 'utf8')).toBe('');
      await unstage(staging, own, true);
      expect(readdirSync(staging)).toEqual(['kubeconfig']);
    },
  );

  test('the staged files of an interrupted pod are removed with those of its successor, and not earlier', async () => {
    const earlier = await staged('credentials', ended());
    const own = await staged('');
    expect(readdirSync(staging).toSorted()).toEqual(['kubeconfig', basename(own), basename(earlier)].toSorted());
    await staged('');
    expect(readdirSync(own).toSorted()).toEqual(['config.yaml', 'program']);
    // Its resizectl may still run on the host.
    await unstage(staging, own, false);
    expect(readdirSync(staging).toSorted()).toEqual(['kubeconfig', basename(earlier)].toSorted());
    await unstage(staging, own, true);
    expect(readdirSync(staging)).toEqual(['kubeconfig']);
  });

  test('a pod that was deleted by force, and ends late, does not remove the staged files of its successor', async () => {
    const running = spawn('sleep', ['1000']);
    try {
      const earlier = await staged('', running.pid);
      const own = await staged('');
      expect(existsSync(programIn(earlier))).toBe(true);
      await unstage(staging, earlier, true);
      expect(existsSync(programIn(own))).toBe(true);
    } finally {
      running.kill();
    }
  });
});

describe('staged kubeconfig and configuration', () => {
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
});
