import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { type LimitReport, limitFiles, limitsSeen, type PodState } from './limits.ts';
import type { WatchCommand, WatchProgress, WatchReport } from './main.ts';

/** The places of a pod that are polled: `RunningPod`, or a pod of a real kubelet. */
export interface WatchedPod {
  readonly cgroup: string;
  /** By name. */
  readonly containers: ReadonlyMap<string, unknown>;
  readonly volumes: readonly { readonly name: string }[];
  containerCgroup(name: string): string;
  volumePath(name: string): string;
}

/** The recording of a pod. */
export interface PodReport extends LimitReport {
  /** How often everything was read. */
  readonly readings: number;
  /** Each state of all limits and volumes, in order. */
  readonly states: readonly PodState[];
}

/** A process that polls limits and volume sizes of one pod at a time. */
export class WatcherProcess {
  readonly #child: ChildProcess;
  readonly #answers: AsyncIterator<string, undefined>;

  constructor() {
    const child = spawn(process.execPath, [join('dist', 'tools', 'watch.js')], { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#child = child;
    this.#answers = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  }

  /** Resolves once the pod has been read for the first time. */
  async watch(pod: WatchedPod): Promise<PodWatcher> {
    const containers = [...pod.containers.keys()].map((name) => [name, pod.containerCgroup(name)] as const);
    const files = [['pod', pod.cgroup] as const, ...containers].flatMap(([whose, folder]) =>
      limitFiles.map((file) => [`${whose} ${file}`, join(folder, file)] as const),
    );
    const volumes = pod.volumes.map(({ name }) => [`volume ${name}`, pod.volumePath(name)] as const);
    const paths = (of: readonly (readonly [name: string, path: string])[]): string[] => of.map(([, path]) => path);
    await this.ask({ what: 'watch', files: paths(files), volumes: paths(volumes) });
    const names = [...files, ...volumes].map(([name]) => name);
    return new PodWatcher(this, names, [...pod.containers.keys()]);
  }

  /** Sends a command and returns its answer. Only one command may run at a time. */
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

/** Watches a pod until {@link report} is called. */
export class PodWatcher {
  #isOwn = false;

  /** @param names names of the values that the process reads, in order */
  constructor(
    private readonly process: WatcherProcess,
    private readonly names: readonly string[],
    private readonly containers: readonly string[],
  ) {}

  /** Starts a watcher process for one pod. Resolves once it polls. */
  static async watch(pod: WatchedPod): Promise<PodWatcher> {
    const watcher = await new WatcherProcess().watch(pod);
    watcher.#isOwn = true;
    return watcher;
  }

  /** Returns how often the pod has been read, after the next reading. */
  async readings(): Promise<number> {
    return (await this.process.ask({ what: 'look' })).readings;
  }

  async report(): Promise<PodReport> {
    const { readings, seen } = (await this.process.ask({ what: 'report' })) as WatchReport;
    if (this.#isOwn) await this.process.end();
    const states = seen.map((values) =>
      Object.fromEntries(this.names.map((name, index) => [name, values[index] ?? ''])),
    );
    return { readings, states, ...limitsSeen(states, this.containers) };
  }
}
