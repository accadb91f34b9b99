import { execFileSync } from 'node:child_process';
import { chmodSync, cpSync, mkdirSync, mkdtempSync, rmSync, unlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import { buildProgram, modules } from './build-program.ts';
import { Program, type ProgramOptions } from './daemon-program.ts';
import { FakeBackend, RawClient } from './fake-backend.ts';

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

  /** Where {@link start} lets the daemon listen. */
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
