import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import type { RunningPod } from '../cri/pod.ts';
import type { WatchReport } from './watch-limits.ts';
import type { VolumeReport } from './watch-volume.ts';

/** A process that polls until it is asked what it saw. */
class Watcher<Report> {
  private constructor(
    private readonly child: ChildProcessByStdio<Writable, Readable, Readable>,
    private readonly output: Promise<string>,
  ) {}

  /** Resolves once it polls. */
  static async start<Report>(tool: string, args: readonly string[]): Promise<Watcher<Report>> {
    const program = join('dist', 'tools', tool);
    const child = spawn(process.execPath, [program, ...args], { stdio: ['pipe', 'pipe', 'pipe'] });
    const output = text(child.stdout);
    await once(child.stderr, 'data');
    return new Watcher<Report>(child, output);
  }

  async report(): Promise<Report> {
    this.child.stdin.end();
    return JSON.parse(await this.output) as Report;
  }
}

/** Watches the limits of a pod and of its containers. */
export const LimitWatcher = {
  watch: (pod: RunningPod): Promise<Watcher<WatchReport>> =>
    Watcher.start('watch-limits.js', [pod.cgroup, ...pod.containers.values()]),
};

/** Watches the memory limits of a pod and of one of its containers beside the size of a volume. */
export const VolumeWatcher = {
  watch(pod: RunningPod, container: string, volume: string): Promise<Watcher<VolumeReport>> {
    const files = [pod.cgroup, join(pod.cgroup, pod.id(container))].map((folder) => join(folder, 'memory.max'));
    return Watcher.start('watch-volume.js', [files.join(','), pod.volumePath(volume)]);
  },
};
