import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { execa } from 'execa';

/** The folder with the programs of another release of containerd. */
const OTHER = process.env['CHAOS_OTHER_CONTAINERD'] ?? '';

/** The containerd of the node: its own release, or another one that replaces it. */
export class Containerd {
  #isOther = false;

  get isOther(): boolean {
    return this.#isOther;
  }

  kill(): void {
    execFileSync('node-containerd', ['kill']);
  }

  async start(): Promise<void> {
    const PATH = `${this.#isOther ? `${OTHER}:` : ''}${process.env['PATH'] ?? ''}`;
    await execa('node-containerd', ['start'], { env: { PATH } });
  }

  /** Starts the other release the next time, or the node's own again. */
  choose(other: boolean): void {
    if (OTHER === '') throw new Error('CHAOS_OTHER_CONTAINERD is not set');
    this.#isOther = other;
  }

  pause(): void {
    process.kill(this.#pid, 'SIGSTOP');
  }

  resume(): void {
    process.kill(this.#pid, 'SIGCONT');
  }

  get #pid(): number {
    return Number(readFileSync('/run/node/containerd.pid', 'utf8'));
  }
}
