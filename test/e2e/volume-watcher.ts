import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import type { RunningPod } from '../cri/pod.ts';
import type { VolumeReport } from './watch-volume.ts';

/** A process that polls the memory limits of a pod and of one of its containers beside the size of a volume. */
export class VolumeWatcher {
  private constructor(
    private readonly child: ChildProcessByStdio<Writable, Readable, Readable>,
    private readonly output: Promise<string>,
  ) {}

  /** Resolves once it polls. */
  static async watch(pod: RunningPod, container: string, volume: string): Promise<VolumeWatcher> {
    const files = [pod.cgroup, join(pod.cgroup, pod.id(container))].map((folder) => join(folder, 'memory.max'));
    const args = [join('dist', 'tools', 'watch-volume.js'), files.join(','), pod.volumePath(volume)];
    const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'pipe'] });
    const output = text(child.stdout);
    await once(child.stderr, 'data');
    return new VolumeWatcher(child, output);
  }

  /** What it saw. */
  async report(): Promise<VolumeReport> {
    this.child.stdin.end();
    return JSON.parse(await this.output) as VolumeReport;
  }
}
