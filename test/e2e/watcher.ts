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

  /**
   * Resolves once it polls. `in the background`: every 2 ms, for tests that take long and look for themselves as well.
   */
  static async watch(pod: RunningPod, how: 'at once' | 'in the background' = 'at once'): Promise<LimitWatcher> {
    const pace = how === 'in the background' ? '2' : '0';
    const args = [join('dist', 'tools', 'watch-limits.js'), pace, pod.cgroup, ...pod.containers.values()];
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
