import { once } from 'node:events';
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { version } from '../../../src/core/config/version.ts';
import { errnoOf } from '../../../tools/download/errors.ts';
import { Program } from '../../support/daemon/daemon-program.ts';
import { FakeBackend, RawClient } from '../../support/daemon/test-daemon.ts';
import { FakeApiServer } from '../../support/kubernetes/fake-api-server.ts';
import { madeExecutable } from './made.ts';

/** Tests each executable part loaded on demand. test/e2e/install/executable.test.ts tests it on a node. */

let made: Awaited<ReturnType<typeof madeExecutable>>;
let folder: string;
const open: (() => unknown)[] = [];

beforeAll(async () => {
  made = await madeExecutable();
}, 900_000);
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'executable-'));
  for (const name of ['cri-resize-shim', 'resizectl']) symlinkSync(made.executable, join(folder, name));
});
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
  rmSync(folder, { recursive: true });
});

/** Runs the executable outside of the checkout, with no Node in PATH. */
async function run(name: string, ...args: readonly string[]): Promise<{ text: string; code: number | undefined }> {
  const options = { cwd: '/', env: { PATH: '' }, extendEnv: false, reject: false, all: true } as const;
  const { all, exitCode } = await execa(join(folder, name), args, options);
  return { text: all, code: exitCode };
}

describe('the program is selected by the name or the first argument', () => {
  test.each([
    ['cri-resize-shim', ['--version'], version],
    ['cri-resize-shim', ['--help'], '--container-runtime-endpoint'],
    ['resizectl', ['--help'], 'Usage: resizectl '],
    ['cri-resize-shim', ['resizectl', '--help'], 'Usage: resizectl '],
    ['resizectl', ['version'], `resizectl ${version}\nresize API at `],
    ['resizectl', ['man'], '.TH RESIZECTL 1 '],
    ['resizectl', ['completion', 'bash'], 'resizectl'],
    ['resizectl', ['completion', 'zsh'], '#compdef resizectl'],
    ['resizectl', ['completion', 'fish'], 'complete'],
    ['resizectl', ['install', '--help'], 'Usage: resizectl install '],
    ['cri-resize-shim', ['licenses'], 'Apache License'],
    ['cri-resize-shim', ['licenses'], 'Copyright Node.js contributors'],
  ])('the single executable runs %s %j', async (name, args, expected) => {
    const { text, code } = await run(name, ...args);
    expect(text).toContain(expected);
    expect([code, text.includes('ExperimentalWarning')]).toEqual([0, false]);
  });

  test('both programs of the single executable reject an unknown flag', async () => {
    for (const name of ['cri-resize-shim', 'resizectl']) {
      const { text, code } = await run(name, '--bogus');
      expect([text, code]).toEqual([expect.stringMatching(new RegExp(`^${name}: .*unknown option '--bogus'`)), 2]);
    }
  });

  test('resizectl doctor checks this machine', async () => {
    const { text } = await run('resizectl', 'doctor', '--container-runtime-endpoint', `unix://${folder}/none.sock`);
    expect(text).toMatch(/^node +ok +Node 26\./m);
    expect(text).toMatch(/^containerd +failed +.*none\.sock: connect ENOENT/m);
  });

  test('resizectl get pods calls the resize API', async () => {
    const { text, code } = await run('resizectl', 'get', 'pods', '--endpoint', `unix://${folder}/none.sock`);
    expect([text, code]).toEqual([expect.stringContaining('none.sock'), 1]);
  });
});

function start(...args: readonly string[]): Program {
  const places = ['--listen', join(folder, 'shim/shim.sock'), '--state-folder', join(folder, 'state')];
  const program = new Program(join(folder, 'cri-resize-shim'), [...places, ...args], {
    isExecutable: true,
    env: { PATH: '' },
  });
  open.push(async () => {
    program.kill('SIGKILL');
    await program.exited;
  });
  return program;
}

async function backend(): Promise<string> {
  mkdirSync(join(folder, 'containerd'));
  const path = join(folder, 'containerd/containerd.sock');
  const served = await FakeBackend.listen(path);
  open.push(() => served.close());
  return path;
}

describe('the daemon of the single executable', () => {
  test('the daemon of the single executable serves metrics and watches annotations if its configuration file enables them', async () => {
    const server = await new FakeApiServer().start();
    open.push(() => server.stop());
    const socketPath = join(folder, 'shim/metrics.sock');
    const config = join(folder, 'config.yaml');
    const settings = {
      containerRuntimeEndpoint: `unix://${await backend()}`,
      metricsBind: `unix://${socketPath}`,
      kubeconfig: server.kubeconfig(join(folder, 'kubeconfig')),
      nodeName: 'node-7',
    };
    writeFileSync(config, JSON.stringify(settings));
    const program = start('--config', config);
    await program.logged('metrics are served');
    await program.logged('watch of pod annotations started');
    expect(server.of('watch')[0]?.query['fieldSelector']).toBe('spec.nodeName=node-7');
    const client = new RawClient(join(folder, 'shim/shim.sock'));
    open.push(() => client.close());
    expect(await client.call('/s/Echo', 'hello')).toBe('hello');
    expect(await get(socketPath, '/metrics')).toContain('cri_resize_shim_passed_calls_total');
    expect(await get(socketPath, '/')).toContain('<!doctype html>');
    program.kill('SIGTERM');
    expect(await program.exited).toEqual({ code: 0, signal: null });
    expect(program.log.filter(({ level }) => level !== 'info')).toEqual([]);
    expect(program.stderr).not.toContain('ExperimentalWarning');
  });

  test('the daemon of the single executable reports the position of an error in its configuration file', async () => {
    const config = join(folder, 'config.yaml');
    writeFileSync(config, 'logLevel: loud\n');
    const { text, code } = await run('cri-resize-shim', '--config', config);
    expect([text, code]).toEqual([expect.stringContaining('config.yaml:1:1: logLevel: "loud" must be one of'), 1]);
  });

  test('upgrade: the single executable loads its native part from an unnamed file, which nobody can replace', async () => {
    // The native part locks a file before the daemon replaces a stale socket.
    mkdirSync(join(folder, 'shim'));
    await leaveStale(join(folder, 'shim/shim.sock'));
    const program = start('--container-runtime-endpoint', `unix://${await backend()}`);
    await program.logged('serving');
    const maps = readFileSync(`/proc/${program.process.pid ?? 0}/maps`, 'utf8').split('\n');
    const files = new Set(maps.flatMap((line) => / (\/.*)$/.exec(line)?.[1] ?? []));
    const system = /^\/(usr\/)?lib(64)?\/(.*\/)?(ld-linux|lib(c|m|dl|pthread|stdc\+\+|gcc_s|rt|atomic)[.-])/;
    const own = [...files].filter((file) => !system.test(file));
    expect(own).toEqual(expect.arrayContaining([made.executable, expect.stringMatching(/^\/.*#\d+ \(deleted\)$/)]));
    expect(own).toHaveLength(2);
    // The file is mapped and closed.
    expect(openFiles(program.process.pid ?? 0)).toContainEqual(expect.stringMatching(/^socket:/));
    expect(openFiles(program.process.pid ?? 0)).not.toContainEqual(expect.stringMatching(/#\d+ \(deleted\)/));
  });
});

/** Returns the targets of a process's descriptors, without descriptors that the process closes during the read. */
function openFiles(pid: number): string[] {
  return readdirSync(`/proc/${pid}/fd`).flatMap((descriptor) => {
    try {
      return [readlinkSync(`/proc/${pid}/fd/${descriptor}`)];
    } catch (error) {
      if (errnoOf(error) === 'ENOENT') return [];
      throw error;
    }
  });
}

/** Leaves a stale socket: kills the process that listens on it. */
async function leaveStale(path: string): Promise<void> {
  const listening = `require('net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 'SIGKILL'))`;
  await execa(process.execPath, ['-e', listening], { reject: false });
}

async function get(socketPath: string, path: string): Promise<string> {
  const sent = request({ socketPath, path, agent: false });
  sent.end();
  const [response] = (await once(sent, 'response')) as [AsyncIterable<Buffer>];
  const pieces: Buffer[] = [];
  for await (const piece of response) pieces.push(piece);
  return Buffer.concat(pieces).toString('utf8');
}

test('the bill of materials lists the packages of the folder, and Node with its parts', () => {
  interface Component {
    readonly name: string;
    readonly version?: string;
    readonly cpe?: string;
    readonly components?: readonly Component[];
  }
  const sbom = JSON.parse(readFileSync(made.sbom, 'utf8')) as {
    readonly bomFormat: string;
    readonly components: readonly Component[];
    readonly dependencies: readonly { ref: string; dependsOn: readonly string[] }[];
  };
  expect(sbom.bomFormat).toBe('CycloneDX');
  const named = (name: string): Component | undefined => sbom.components.find((component) => component.name === name);
  expect(named('koffi')).toBeDefined();
  expect(named('postject')).toBeUndefined();
  const node = named('node');
  expect(node?.cpe).toMatch(/^cpe:2\.3:a:nodejs:node\.js:26\./);
  const parts = node?.components?.map(({ name }) => name);
  expect(parts).toEqual(expect.arrayContaining(['v8', 'openssl', 'uv', 'nghttp2', 'zlib']));
  const own = sbom.dependencies.find(({ ref }) => ref.startsWith('cri-resize-shim@'));
  expect(own?.dependsOn).toContain(`pkg:npm/node-linux-${process.arch}@${node?.version ?? ''}`);
});
