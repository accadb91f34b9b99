import { closeSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import koffi from 'koffi';
import { beforeEach } from 'vitest';
import { socketAddress } from '../../../src/core/systemd/datagram.ts';
import type { Program } from './daemon-program.ts';
import type { NamedDescriptor } from './held-socket.ts';
import { HeldSocket, passOn } from './held-socket.ts';
import type { TestDaemon } from './test-daemon.ts';

/** Starts daemons with sockets that it holds, as systemd does. */
export class FakeSystemd {
  /** Paths for the two sockets. */
  cri = '';
  resize = '';
  readonly #daemon: TestDaemon;

  constructor(daemon: TestDaemon) {
    this.#daemon = daemon;
    beforeEach(() => {
      mkdirSync(join(daemon.folder, 'run'), { mode: 0o711 });
      this.cri = join(daemon.folder, 'run/cri.sock');
      this.resize = join(daemon.folder, 'run/resize.sock');
    });
  }

  /** Creates a socket. Returns its descriptor. */
  hold(path: string, options: ConstructorParameters<typeof HeldSocket>[1] = {}): number {
    const socket = new HeldSocket(path, options);
    this.#daemon.cleanUp(() => socket.close());
    return socket.descriptor;
  }

  start(sockets: readonly NamedDescriptor[], env: NodeJS.ProcessEnv = {}, ...args: readonly string[]): Program {
    return this.#daemon.startWith({ passedOn: passOn(sockets), env }, ...args);
  }
}

type Async<Arguments extends readonly unknown[]> = {
  async: (...all: [...Arguments, (error: Error | null, result: number) => void]) => void;
};

const libc = koffi.load(null);
const socket = libc.func('int socket(int domain, int type, int protocol)') as (...all: number[]) => number;
const bind = libc.func('bind', 'int', ['int', 'void *', 'uint']) as (fd: number, to: Buffer, size: number) => number;
const recv = libc.func('recv', 'long', ['int', 'void *', 'size_t', 'int']) as unknown as Async<
  [number, Buffer, number, number]
>;
const recvNow = libc.func('recv', 'long', ['int', 'void *', 'size_t', 'int']) as (
  ...all: [number, Buffer, number, number]
) => number;
const MSG_DONTWAIT = 0x40;
const shutdown = libc.func('int shutdown(int fd, int how)') as (fd: number, how: number) => number;

/** The unix datagram socket on which systemd receives notifications. */
export class NotifySocket {
  readonly messages: string[] = [];
  readonly #descriptor: number;
  readonly #waiting = new Set<() => void>();
  readonly #ended: Promise<void>;

  /**
   * @param name absolute path, or `@` and an abstract name
   * @param receives `always` with a waiting worker, or `on drain` without a worker
   */
  constructor(
    readonly name: string,
    receives: 'always' | 'on drain' = 'always',
  ) {
    this.#descriptor = socket(1, 2 | 0o2000000, 0);
    const address = socketAddress(name);
    if (bind(this.#descriptor, address, address.length) !== 0) throw new Error(`bind ${name}: ${koffi.errno()}`);
    this.#ended = receives === 'always' ? this.#receive() : Promise.resolve();
  }

  /** Returns the first message with this line, now or when it arrives, after skipping `past` messages. */
  async waitFor(line: string, past = 0): Promise<string> {
    for (;;) {
      const found = this.messages.slice(past).find((message) => message.split('\n').includes(line));
      if (found !== undefined) return found;
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
    }
  }

  /** Returns all messages that were sent and not received yet. */
  drain(): readonly string[] {
    const bytes = Buffer.alloc(65_536);
    const received: string[] = [];
    for (;;) {
      const size = recvNow(this.#descriptor, bytes, bytes.length, MSG_DONTWAIT);
      if (size <= 0) return received;
      received.push(bytes.toString('utf8', 0, size));
    }
  }

  async close(): Promise<void> {
    // Wakes the worker that waits in recv.
    shutdown(this.#descriptor, 2);
    await this.#ended;
    closeSync(this.#descriptor);
  }

  async #receive(): Promise<void> {
    const bytes = Buffer.alloc(65_536);
    for (;;) {
      const size = await new Promise<number>((resolve, reject) =>
        recv.async(this.#descriptor, bytes, bytes.length, 0, (error, result) =>
          error === null ? resolve(result) : reject(error),
        ),
      );
      if (size <= 0) return;
      this.messages.push(bytes.toString('utf8', 0, size));
      for (const wake of this.#waiting) wake();
      this.#waiting.clear();
    }
  }
}
