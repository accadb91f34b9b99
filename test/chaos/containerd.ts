import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { execa } from 'execa';

/** The folder with the programs of another release of containerd. */
const OTHER = process.env['CHAOS_OTHER_CONTAINERD'] ?? '';
const PAUSED_MS = 10_000;
const POLL_MS = 10;

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

  /** Selects the other release or the node's own release for the next start. */
  choose(other: boolean): void {
    if (OTHER === '') throw new Error('CHAOS_OTHER_CONTAINERD is not set');
    this.#isOther = other;
  }

  pause(): void {
    process.kill(this.#pid, 'SIGSTOP');
  }

  /** Waits until all threads are stopped, which takes a moment after {@link pause} (state T of proc_pid_stat(5)). */
  async isPaused(): Promise<void> {
    const folder = `/proc/${this.#pid}/task`;
    const isStopped = (thread: string): boolean => / T \d+ /.test(readFileSync(`${folder}/${thread}/stat`, 'utf8'));
    for (const limit = performance.now() + PAUSED_MS; !readdirSync(folder).every(isStopped); ) {
      if (performance.now() > limit) throw new Error('containerd does not stop: the fault has not occurred');
      await pause(POLL_MS);
    }
  }

  resume(): void {
    process.kill(this.#pid, 'SIGCONT');
  }

  get #pid(): number {
    return Number(readFileSync('/run/node/containerd.pid', 'utf8'));
  }
}
