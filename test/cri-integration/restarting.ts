import { setTimeout as delay } from 'node:timers/promises';
import { execa } from 'execa';

/** Tests poll once per second until containerd is down, and must observe this. */
const DOWN_MS = 3000;

/** Starts the node's containerd again when a test has killed it. */
export class RestartingContainerd {
  readonly #ending = new AbortController();
  readonly #done: Promise<void>;

  constructor(private readonly say: (line: string) => void) {
    this.#done = this.#follow();
  }

  async stop(): Promise<void> {
    this.#ending.abort();
    await this.#done;
  }

  async #follow(): Promise<void> {
    const { signal } = this.#ending;
    for (;;) {
      // The read ends with containerd, because its parent process has the other end of the FIFO open until then.
      const { failed } = await execa('cat', ['/run/node/containerd.alive'], { cancelSignal: signal, reject: false });
      if (signal.aborted) return;
      if (failed) throw new Error('cannot follow containerd');
      this.say('containerd ended; it starts again');
      await delay(DOWN_MS);
      await execa('node-containerd', ['start']);
    }
  }
}
