import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach } from 'vitest';
import type { Program } from './daemon-program.ts';
import { HeldSocket, type NamedDescriptor, passOn } from './held-socket.ts';
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
