import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import type { RunningPod } from '../cri/pod.ts';
import type { WatchReport } from './watch-limits.ts';

/** A process that polls a pod's limits until it is asked what it saw. */
export class LimitWatcher {
  private constructor(
    private readonly child: ChildProcess,
    private readonly output: Promise<string>,
  ) {}

  /** Resolves once it polls. */
  static async watch(pod: RunningPod): Promise<LimitWatcher> {
    const args = [join('dist', 'tools', 'watch-limits.js'), pod.cgroup, ...pod.containers.values()];
    const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'pipe'] });
    const output = text(child.stdout);
    await once(child.stderr, 'data');
    return new LimitWatcher(child, output);
  }

  async report(): Promise<WatchReport> {
    this.child.stdin?.end();
    return JSON.parse(await this.output) as WatchReport;
  }
}
