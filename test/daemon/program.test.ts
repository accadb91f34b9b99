import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Metadata, status } from '@grpc/grpc-js';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { version } from '../../src/config/index.ts';
import { FakeBackend, RawClient } from '../support/fake-backend.ts';
import { Program, buildProgram } from '../support/daemon-program.ts';

const isRoot = process.getuid?.() === 0;
let file: string;
let folder: string;
let listen: string;
let backendPath: string;
const open: (() => unknown)[] = [];

beforeAll(async () => {
  file = await buildProgram();
}, 60_000);
afterAll(() => unlinkSync(file));

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'program-'));
  chmodSync(folder, 0o755);
  listen = join(folder, 'shim/shim.sock');
  backendPath = join(folder, 'containerd/containerd.sock');
  mkdirSync(join(folder, 'containerd'));
});
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
  rmSync(folder, { recursive: true });
});

function start(...args: string[]): Program {
  return startWith(
    {},
    '--listen',
    `unix://${listen}`,
    '--container-runtime-endpoint',
    `unix://${backendPath}`,
    ...args,
  );
}

function startWith(options: { uid?: number }, ...args: string[]): Program {
  const program = new Program(file, args, options);
  open.push(async () => {
    program.kill('SIGKILL');
    await program.exited;
  });
  return program;
}

async function startBackend(): Promise<FakeBackend> {
  const backend = await FakeBackend.listen(backendPath);
  open.push(() => backend.close());
  return backend;
}

function connect(): RawClient {
  const client = new RawClient(listen);
  open.push(() => client.close());
  return client;
}

describe('the program', () => {
  test('serves: calls of any service reach the backend, and the socket has its rights', async () => {
    await startBackend();
    chmodSync(backendPath, 0o660);
    if (isRoot) chownSync(backendPath, 0, 1234);
    const program = start();
    expect(await program.logged('serving')).toMatchObject({ level: 'info', version, listen, backend: backendPath });
    expect(await connect().call('/s/Echo', 'hello')).toBe('hello');
    expect(await connect().code('/s/None')).toBe(status.UNIMPLEMENTED);
    expect((lstatSync(listen).mode & 0o777).toString(8)).toBe('660');
    if (isRoot) expect(lstatSync(listen).gid).toBe(1234);
    expect(program.stdout).toBe('');
  });

  test('with --intercept=false serves as well', async () => {
    await startBackend();
    const program = start('--intercept=false');
    expect(await program.logged('serving')).toMatchObject({ intercept: false });
    expect(await connect().call('/s/Echo', 'hello')).toBe('hello');
  });

  test('starts without a backend: UNAVAILABLE until it is there, its rights when it is', async () => {
    const program = start();
    await program.logged('serving');
    const client = connect();
    expect(await client.code('/s/Echo')).toBe(status.UNAVAILABLE);
    if (isRoot) expect((lstatSync(listen).mode & 0o777).toString(8)).toBe('600');
    await startBackend();
    chmodSync(backendPath, 0o666);
    await vi.waitFor(async () => expect(await client.code('/s/Echo')).toBe(0), { timeout: 10_000 });
    await vi.waitFor(() => expect((lstatSync(listen).mode & 0o777).toString(8)).toBe('666'), { timeout: 10_000 });
  });

  test('says nothing secret in its log, even when asked to say all', async () => {
    await startBackend();
    const program = start('--log-level=trace', '--log-passed-calls');
    await program.logged('serving');
    const metadata = new Metadata();
    metadata.set('authorization', 'Bearer hunter2');
    await connect().call('/s/Echo', 'PASSWORD=hunter2', metadata);
    program.kill('SIGTERM');
    expect(await program.exited).toEqual({ code: 0, signal: null });
    expect(program.stderr).not.toContain('hunter2');
  });

  test('goes on when nobody reads its log any more', async () => {
    await startBackend();
    const program = start('--log-level=trace', '--log-passed-calls');
    await program.logged('serving');
    program.process.stderr?.destroy();
    const client = connect();
    for (const text of ['a', 'b', 'c']) expect(await client.call('/s/Echo', text)).toBe(text);
    program.kill('SIGTERM');
    expect((await once(program.process, 'exit'))[0]).toBe(0);
  });
});

describe('SIGTERM', () => {
  test('lets running calls and streams end, takes no new ones, leaves no socket, and exits 0', async () => {
    const backend = await startBackend();
    const program = start();
    await program.logged('serving');
    const client = connect();
    const hanging = once(backend.events, 'hanging');
    const call = client.call('/s/Hang', 'late');
    await hanging;
    const stream = client.stream('/s/Stream');
    const received: string[] = [];
    stream.on('data', (bytes: Buffer) => received.push(String(bytes)));
    const ended = once(stream, 'end');
    await once(stream, 'data');

    program.kill('SIGTERM');
    expect(await program.logged('stopping')).toMatchObject({ signal: 'SIGTERM', connections: 1 });
    await vi.waitFor(() => expect(existsSync(listen)).toBe(false));
    expect(await connect().code('/s/Echo')).toBe(status.UNAVAILABLE);
    backend.release();
    expect(await call).toBe('late');
    await ended;
    expect(received).toEqual(['first', 'last']);
    expect(await program.exited).toEqual({ code: 0, signal: null });
    expect(program.log.map(({ level, msg }) => `${level} ${msg}`).slice(-1)).toEqual(['info stopped']);
    // Of calls that were cut. (This backend knows no pods: that is said as well when it comes to it before the end.)
    expect(program.log.filter(({ level, cut }) => level === 'warn' && cut !== undefined)).toEqual([]);
  });

  test('with idle clients ends at once', async () => {
    await startBackend();
    const program = start();
    await program.logged('serving');
    await connect().call('/s/Echo', 'x');
    program.kill('SIGINT');
    expect(await program.exited).toEqual({ code: 0, signal: null });
  });

  test('cuts what runs longer than the shutdown timeout, says how many, and exits 0', async () => {
    const backend = await startBackend();
    const program = start('--shutdown-timeout=200ms');
    await program.logged('serving');
    const client = connect();
    const codes: Promise<number>[] = [];
    for (let count = 0; count < 3; count += 1) {
      const hanging = once(backend.events, 'hanging');
      codes.push(client.code('/s/Hang'));
      await hanging;
    }
    program.kill('SIGTERM');
    expect(await program.exited).toEqual({ code: 0, signal: null });
    expect(program.log.find(({ level }) => level === 'warn')).toMatchObject({ cut: 3, timeoutMs: 200 });
    for (const code of await Promise.all(codes)) expect(code).toBe(status.UNAVAILABLE);
  });

  test.each([
    ['SIGTERM', 143],
    ['SIGINT', 130],
  ] as const)('twice (then %s) ends it at once with code %i', async (signal, code) => {
    const backend = await startBackend();
    const program = start();
    await program.logged('serving');
    const hanging = once(backend.events, 'hanging');
    const call = connect().code('/s/Hang');
    await hanging;
    program.kill('SIGTERM');
    await program.logged('stopping');
    program.kill(signal);
    expect(await program.exited).toEqual({ code, signal: null });
    // Its connection is gone, without a word: grpc-js calls that one or the other.
    expect([status.UNAVAILABLE, status.INTERNAL]).toContain(await call);
  });
});

describe('the socket', () => {
  test('of a running shim is not taken: exit code 1, and one line that says who has it', async () => {
    await startBackend();
    const first = start();
    await first.logged('serving');
    const second = start();
    expect(await second.exited).toEqual({ code: 1, signal: null });
    expect(second.stderr).toBe(
      `cri-resize-shim: cannot listen on ${listen}: pid ${first.process.pid} (node) already listens there; stop it or use another path\n`,
    );
    expect(await connect().call('/s/Echo', 'x')).toBe('x');
  });

  test('of a killed shim is taken, by one of several that start at once', async () => {
    await startBackend();
    const killed = start();
    await killed.logged('serving');
    killed.kill('SIGKILL');
    await killed.exited;
    expect(existsSync(listen)).toBe(true);

    const programs = Array.from({ length: 4 }, () => start());
    const outcomes = await Promise.all(
      programs.map((program) =>
        Promise.race([program.exited.then(({ code }) => code), program.logged('serving').then(() => 'serving')]).catch(
          () => 1,
        ),
      ),
    );
    expect(outcomes.sort()).toEqual([1, 1, 1, 'serving']);
    expect(await connect().call('/s/Echo', 'x')).toBe('x');
  });

  test.runIf(isRoot)('in a folder without the right to write: exit code 1 and one line', async () => {
    const program = startWith({ uid: 65_534 }, '--listen', join(folder, 'x.sock'));
    expect(await program.exited).toEqual({ code: 1, signal: null });
    expect(program.stderr).toBe(
      `cri-resize-shim: cannot listen on ${folder}/x.sock: no permission to create a socket in ${folder}; run as root or use a path in a folder of your own\n`,
    );
  });
});

describe('the command line', () => {
  test('--version and --help print to stdout and exit 0', async () => {
    const printed = startWith({}, '--version');
    expect(await printed.exited).toEqual({ code: 0, signal: null });
    expect([printed.stdout, printed.stderr]).toEqual([`${version}\n`, '']);
    const help = startWith({}, '--help');
    expect(await help.exited).toEqual({ code: 0, signal: null });
    expect(help.stdout).toContain('--container-runtime-endpoint <ADDRESS>');
  });

  test('that is wrong: exit code 2, a line, and where to look', async () => {
    const program = start('--log-level=loud');
    expect(await program.exited).toEqual({ code: 2, signal: null });
    expect(program.stderr).toBe(
      'cri-resize-shim: --log-level: "loud" must be one of trace, debug, info, warn, error\ncri-resize-shim: --help lists the flags\n',
    );
  });

  test('with a wrong file: exit code 1, and a line for each fault', async () => {
    const config = join(folder, 'config.yaml');
    writeFileSync(config, 'intercept: true\nlogLevel: loud\nshutdownTimeout: 3\n');
    const program = start('--config', config);
    expect(await program.exited).toEqual({ code: 1, signal: null });
    expect(program.stderr.split('\n')).toEqual([
      `cri-resize-shim: ${config}:2:1: logLevel: "loud" must be one of trace, debug, info, warn, error`,
      expect.stringContaining(
        `cri-resize-shim: ${config}:3:1: shutdownTimeout: 3 must be a duration such as`,
      ) as unknown,
      '',
    ]);
  });

  test('with a right file: its settings hold', async () => {
    await startBackend();
    const config = join(folder, 'config.yaml');
    writeFileSync(config, `listen: unix://${listen}\ncontainerRuntimeEndpoint: ${backendPath}\nlogLevel: warn\n`);
    const program = startWith({}, '--config', config);
    await vi.waitFor(() => expect(existsSync(listen)).toBe(true), { timeout: 10_000 });
    expect(await connect().call('/s/Echo', 'x')).toBe('x');
    program.kill('SIGTERM');
    expect(await program.exited).toEqual({ code: 0, signal: null });
    expect(program.stderr).toBe('');
  });
});
