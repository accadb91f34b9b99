import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { Client, compressionAlgorithms, credentials, Metadata, status } from '@grpc/grpc-js';
import { expect, onTestFinished, test } from 'vitest';
import { runtimePath } from '../../src/runtime/backend.ts';
import { Program } from '../support/daemon/daemon-program.ts';
import { FakeBackend, RawClient } from '../support/daemon/test-daemon.ts';

/** The output of tools/build.mjs, which npm test runs first. */
const folder = resolve('dist');
const text = (name: string): string => readFileSync(join(folder, name), 'utf8');

/** Returns the files that each start reads: the daemon's file and its static imports, with theirs. */
function filesAtStart(name = 'cri-resize-shim.js', found = new Set<string>()): Set<string> {
  found.add(name);
  for (const [, , chunk] of text(name).matchAll(/(from|import)"\.\/(?:chunks\/)?([^"]+\.js)"/g)) {
    const file = `chunks/${chunk!}`;
    if (!found.has(file)) filesAtStart(file, found);
  }
  return found;
}

test('the client of the Kubernetes API is in a file that is read only with --kubeconfig', () => {
  const atStart = [...filesAtStart()];
  expect(atStart.length).toBeGreaterThan(1);
  const withClient = readdirSync(join(folder, 'chunks'))
    .filter((name) => name.endsWith('.js'))
    .map((name) => `chunks/${name}`)
    .filter((name) => text(name).includes('loadFromCluster'));
  expect(withClient).toEqual([expect.stringMatching(/^chunks\/annotations-/)]);
  expect(atStart).not.toContain(withClient[0]);
  expect(atStart.filter((name) => /loadFromCluster|events\.k8s\.io/.test(text(name)))).toEqual([]);
});

test('metrics, health checks and status page are in files that are read only with --metrics-bind', () => {
  const words = /readyz check|<!doctype html>|# TYPE/;
  const files = readdirSync(join(folder, 'chunks')).filter((name) => name.endsWith('.js'));
  const serving = files.map((name) => `chunks/${name}`).filter((name) => words.test(text(name)));
  expect(serving.length).toBeGreaterThan(0);
  const atStart = filesAtStart();
  expect(serving.filter((name) => atStart.has(name))).toEqual([]);
});

test('grpc-js is in files that are read only with the first client that needs it', () => {
  const files = readdirSync(join(folder, 'chunks')).filter((name) => name.endsWith('.js'));
  const withGrpc = files.map((name) => `chunks/${name}`).filter((name) => text(name).includes('grpc-node-js'));
  expect(withGrpc).toHaveLength(1);
  const atStart = filesAtStart();
  expect(withGrpc.filter((name) => atStart.has(name))).toEqual([]);
  expect([...atStart].filter((name) => /node:http2|require\("http2"\)/.test(text(name)))).toEqual([]);
});

test('modules of Node that take much memory and are rarely needed are not loaded at start', () => {
  const loads =
    /(?:from|import|require\()"(?:node:)?(?:assert|cluster|crypto|http|http2|https|process|tls|worker_threads|zlib)"/;
  expect([...filesAtStart()].filter((name) => loads.test(text(name)))).toEqual([]);
});

/** Logs at SIGUSR2 whether node:http2 is loaded, which grpc-js needs. */
const PRELOAD = `data:text/javascript,${encodeURIComponent(`
  process.on('SIGUSR2', () => {
    const isLoaded = process.moduleLoadList.includes('NativeModule http2');
    console.error(JSON.stringify({ level: 'info', msg: isLoaded ? 'http2 is loaded' : 'http2 is not loaded' }));
  });
`)}`;

/** Starts the daemon that was built, and a backend. */
async function startBuilt(): Promise<{ program: Program; socket: string; resizeSocket: string }> {
  const sockets = mkdtempSync(join(tmpdir(), 'built-'));
  const backend = await FakeBackend.listen(join(sockets, 'backend.sock'));
  const socket = join(sockets, 'cri.sock');
  const args = ['--listen', `unix://${socket}`, '--container-runtime-endpoint', `unix://${sockets}/backend.sock`];
  const env = { NODE_OPTIONS: `--import=${PRELOAD}` };
  const resizeSocket = join(sockets, 'resize.sock');
  const resize = ['--resize-listen', `unix://${resizeSocket}`];
  const program = new Program(join(folder, 'cri-resize-shim.js'), [...args, ...resize], { env });
  onTestFinished(async () => {
    program.kill('SIGKILL');
    await program.exited;
    backend.close();
    rmSync(sockets, { recursive: true });
  });
  await program.logged('serving');
  return { program, socket, resizeSocket };
}

/** Makes a compressed call, which the proxy leaves to a grpc-js server. Returns its status. */
function compressedCall(client: Client, method: string): Promise<number> {
  const raw = (bytes: Buffer): Buffer => bytes;
  const path = runtimePath(method);
  return new Promise((done) => {
    client.makeUnaryRequest(path, raw, raw, Buffer.alloc(1000), new Metadata(), (error) => done(error?.code ?? 0));
  });
}

test('grpc-js is loaded with the first call that needs it, not at start and not for unary calls', async () => {
  const { program, socket, resizeSocket } = await startBuilt();
  const kubelet = new RawClient(socket);
  const agent = new RawClient(resizeSocket);
  const other = new Client(`unix:${socket}`, credentials.createInsecure(), {
    'grpc.default_compression_algorithm': compressionAlgorithms.gzip,
  });
  onTestFinished(() => {
    kubelet.close();
    agent.close();
    other.close();
  });
  // The backend does not implement the call, which shows that it was forwarded.
  expect(await kubelet.code(runtimePath('Version'))).toBe(status.UNIMPLEMENTED);
  expect(await kubelet.code(runtimePath('ContainerStatus'))).toBe(status.OK);
  // The error of the shim's own client shows that the shim handles the call.
  expect(await kubelet.code(runtimePath('UpdateContainerResources'), '\n\x01c')).toBe(status.UNIMPLEMENTED);
  const api = (method: string): string => `/criresize.v1alpha1.ResizeService/${method}`;
  expect(await agent.code(api('ListPods'))).toBe(status.OK);
  expect(await agent.code(api('ResizePod'))).toBe(status.INVALID_ARGUMENT);
  program.kill('SIGUSR2');
  await program.logged('http2 is not loaded');

  expect(await compressedCall(other, 'UpdateContainerResources')).not.toBe(status.OK);
  program.kill('SIGUSR2');
  await program.logged('http2 is loaded');
});

test('the manual page is in the folder of resizectl', () => {
  expect(text('resizectl.1')).toMatch(/^\.TH RESIZECTL 1 /);
});

test('the heap settings for V8 are in the file of the daemon', () => {
  const withSettings = [...filesAtStart()].filter((name) => text(name).includes('--semi-space-growth-factor=1'));
  expect(withSettings).toEqual(['cri-resize-shim.js']);
});
