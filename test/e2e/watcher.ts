import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { RunningPod } from '../cri/pod.ts';
import type { WatchCommand, WatchProgress, WatchReport } from './watch-limits.ts';

/** A process that polls a pod's limits, one pod after the other. */
export class WatcherProcess {
  readonly #child: ChildProcess;
  readonly #answers: AsyncIterator<string, undefined>;

  constructor() {
    const child = spawn(process.execPath, [join('dist', 'tools', 'watch-limits.js')], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    this.#child = child;
    this.#answers = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  }

  /** Resolves once the pod's limits have been read for the first time. */
  async watch(pod: RunningPod): Promise<LimitWatcher> {
    await this.ask({ what: 'watch', pod: pod.cgroup, containers: [...pod.containers.values()] });
    return new LimitWatcher(this);
  }

  /** One at a time. */
  async ask(command: WatchCommand): Promise<WatchProgress | WatchReport> {
    this.#child.stdin?.write(`${JSON.stringify(command)}\n`);
    const answer = await this.#answers.next();
    if (answer.done === true) throw new Error('the watcher has ended');
    return JSON.parse(answer.value) as WatchProgress | WatchReport;
  }

  async end(): Promise<void> {
    const exit = once(this.#child, 'exit');
    this.#child.stdin?.end();
    await exit;
  }
}

/** Watches a pod's limits until it is asked what it saw. */
export class LimitWatcher {
  constructor(
    private readonly process: WatcherProcess,
    private readonly isOwn = false,
  ) {}

  /** With a process of its own. Resolves once it polls. */
  static async watch(pod: RunningPod): Promise<LimitWatcher> {
    const process = new WatcherProcess();
    await process.watch(pod);
    return new LimitWatcher(process, true);
  }

  /** How often it has read all limits, once more after this was asked included. */
  async readings(): Promise<number> {
    return (await this.process.ask({ what: 'look' })).readings;
  }

  async report(): Promise<WatchReport> {
    const report = (await this.process.ask({ what: 'report' })) as WatchReport;
    if (this.isOwn) await this.process.end();
    return report;
  }
}
