import { execFileSync } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { chmodSync, cpSync, mkdirSync, mkdtempSync, rmSync, unlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ServerUnaryCall, ServerWritableStream, ServiceError, sendUnaryData } from '@grpc/grpc-js';
import { Client, credentials, Metadata, Server, ServerCredentials } from '@grpc/grpc-js';
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import { buildProgram, modules } from './build-program.ts';
import type { ProgramOptions } from './daemon-program.ts';
import { Program } from './daemon-program.ts';

const identity = (bytes: Buffer): Buffer => bytes;

/** Replaces containerd: `/s/Echo` answers with its request, `/s/Hang` and `/s/Stream` when the test says so. */
export class FakeBackend {
  readonly #server = new Server();
  readonly events = new EventEmitter();
  readonly #hanging: (() => void)[] = [];

  private constructor(others: readonly string[]) {
    this.#server.register('/s/Echo', echo, identity, identity, 'unary');
    this.#server.register('/s/Hang', this.#hang, identity, identity, 'unary');
    // Calls of the shim itself are answered for an empty node.
    const methods = ['ListPodSandbox', 'ListContainers', 'Status', 'RuntimeConfig', 'ContainerStatus'];
    for (const method of [...methods, ...others]) {
      this.#server.register(`/runtime.v1.RuntimeService/${method}`, empty, identity, identity, 'unary');
    }
    this.#server.register('/s/Stream', this.#stream, identity, identity, 'serverStream');
  }

  /** @param others methods of the runtime service to answer, too */
  static async listen(path: string, others: readonly string[] = []): Promise<FakeBackend> {
    const backend = new FakeBackend(others);
    await new Promise<void>((resolve, reject) => {
      backend.#server.bindAsync(`unix:${path}`, ServerCredentials.createInsecure(), (error) =>
        error === null ? resolve() : reject(error),
      );
    });
    return backend;
  }

  /** Ends all hanging calls. */
  release(): void {
    for (const end of this.#hanging.splice(0)) end();
  }

  close(): void {
    this.#server.forceShutdown();
  }

  #hang = (call: ServerUnaryCall<Buffer, Buffer>, respond: sendUnaryData<Buffer>): void => {
    this.#hanging.push(() => respond(null, call.request));
    this.events.emit('hanging');
  };

  #stream = (call: ServerWritableStream<Buffer, Buffer>): void => {
    call.write(Buffer.from('first'));
    this.#hanging.push(() => {
      call.write(Buffer.from('last'));
      call.end();
    });
  };
}

function echo(call: ServerUnaryCall<Buffer, Buffer>, respond: sendUnaryData<Buffer>): void {
  respond(null, call.request);
}

function empty(_: ServerUnaryCall<Buffer, Buffer>, respond: sendUnaryData<Buffer>): void {
  respond(null, Buffer.alloc(0));
}

/** A client on a unix socket that sends raw bytes. */
export class RawClient {
  readonly #client: Client;

  constructor(path: string) {
    this.#client = new Client(`unix:${path}`, credentials.createInsecure(), {
      'grpc.use_local_subchannel_pool': 1,
      'grpc.initial_reconnect_backoff_ms': 50,
      'grpc.max_reconnect_backoff_ms': 50,
    });
  }

  /** Rejects with grpc-js's ServiceError. */
  call(path: string, request: string, metadata = new Metadata()): Promise<string> {
    return new Promise((resolve, reject) => {
      const deadline = Date.now() + 120_000;
      this.#client.makeUnaryRequest(
        path,
        identity,
        identity,
        Buffer.from(request, 'latin1'),
        metadata,
        { deadline },
        (error, response) => (error === null ? resolve(String(response)) : reject(error)),
      );
    });
  }

  /** Returns the code with which a call fails, or 0. */
  code(path: string, request = ''): Promise<number> {
    return this.call(path, request).then(
      () => 0,
      (error: unknown) => (error as ServiceError).code,
    );
  }

  stream(path: string): EventEmitter {
    return this.#client.makeServerStreamRequest(path, identity, identity, Buffer.alloc(0), new Metadata());
  }

  close(): void {
    this.#client.close();
  }
}

/** Starts daemons from source, with a fake backend and clients. Each test gets a new folder and stops them. */
export class TestDaemon {
  /** The bundled daemon. */
  file = '';
  folder = '';
  readonly #cleanUps: (() => unknown)[] = [];

  constructor() {
    beforeAll(async () => {
      this.file = await buildProgram();
    });
    afterAll(() => unlinkSync(this.file));
    beforeEach(() => {
      this.folder = mkdtempSync(join(tmpdir(), 'daemon-'));
      chmodSync(this.folder, 0o755);
      mkdirSync(join(this.folder, 'containerd'));
    });
    afterEach(async () => {
      for (const cleanUp of this.#cleanUps.splice(0).reverse()) await cleanUp();
      rmSync(this.folder, { recursive: true });
    });
  }

  /** Returns the socket on which {@link start} lets the daemon listen. */
  get listen(): string {
    return join(this.folder, 'shim/shim.sock');
  }

  get backendPath(): string {
    return join(this.folder, 'containerd/containerd.sock');
  }

  /** Runs an action after the test. Later actions run first. */
  cleanUp(action: () => unknown): void {
    this.#cleanUps.push(action);
  }

  /** Starts a daemon with the sockets of this folder. */
  start(...args: readonly string[]): Program {
    return this.startWith({}, ...args);
  }

  /** Starts a daemon with the sockets of this folder, and with options of its process. */
  startWith(options: ProgramOptions, ...args: readonly string[]): Program {
    const sockets = ['--listen', `unix://${this.listen}`, '--container-runtime-endpoint', `unix://${this.backendPath}`];
    return this.run(options, ...sockets, ...args);
  }

  /** Starts a daemon with these arguments only. */
  run(options: ProgramOptions, ...args: readonly string[]): Program {
    const program = new Program(options.uid === undefined ? this.file : this.#readableFile(), args, options);
    this.cleanUp(async () => {
      program.kill('SIGKILL');
      await program.exited;
    });
    return program;
  }

  /** Copies the daemon and its native part to where every user can read. The checkout may be in a root folder. */
  #readableFile(): string {
    const program = join(this.folder, 'program');
    const file = join(program, 'daemon.mjs');
    cpSync(this.file, file);
    for (const name of ['koffi', '@koromix'])
      cpSync(join(modules, name), join(program, 'node_modules', name), { recursive: true });
    execFileSync('chmod', ['-R', 'a+rX', program]);
    return file;
  }

  async startBackend(): Promise<FakeBackend> {
    const backend = await FakeBackend.listen(this.backendPath);
    this.cleanUp(() => backend.close());
    return backend;
  }

  connect(path = this.listen): RawClient {
    const client = new RawClient(path);
    this.cleanUp(() => client.close());
    return client;
  }
}

/**
 * Stops a daemon by SIGTERM while a call hangs, and then by a second signal. Resolves when the process has ended: with
 * how it ended, and the code of the call.
 */
export async function stopTwice(
  daemon: TestDaemon,
  backend: FakeBackend,
  program: Program,
  signal: NodeJS.Signals,
): Promise<{ readonly exit: Awaited<Program['exited']>; readonly code: number }> {
  const hanging = once(backend.events, 'hanging');
  const code = daemon.connect().code('/s/Hang');
  await hanging;
  program.kill('SIGTERM');
  await program.logged('stopping');
  program.kill(signal);
  return { exit: await program.exited, code: await code };
}
