import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { CrashingShim } from '../crash/crashing-shim.ts';
import { resources, SLEEP } from '../crash/scenario.ts';
import { CriClient } from '../support/cri/client.ts';
import { type RunningPod, runPod } from '../support/cri/pod.ts';
import { type PodWatcher, WatcherProcess } from '../watch/watcher.ts';
import { Containerd } from './containerd.ts';
import { Disk } from './disk.ts';
import { Load, type Updates } from './load.ts';
import { type Faults, NO_FAULTS } from './preload/rules.ts';
import type { Random } from './random.ts';

const SETTLED_MS = 60_000;
const POLL_MS = 100;
/** The CPU requests equal the lowest limit in {@link Load}, because a limit below its request is rejected. */
const POD = {
  name: 'web',
  containers: [
    { name: 'a', command: SLEEP, resources: resources(64, 100, 50), mounts: { cache: '/cache' } },
    { name: 'b', command: SLEEP, resources: resources(128, 200, 50) },
  ],
  volumes: [{ name: 'cache', size: 64 * MiB }],
};
/** The values of {@link POD}. */
const START = {
  a: { limits: { memory: '64Mi', cpu: '100m' } },
  b: { limits: { memory: '128Mi', cpu: '200m' } },
};

/** The node of a chaos run: a shim with a state folder on a separate disk, containerd, two pods and the clients. */
export class Stage {
  readonly disk = new Disk();
  readonly containerd = new Containerd();
  readonly direct = new CriClient('unix:///run/containerd/containerd.sock');
  readonly shim: CrashingShim;
  readonly #faults = join(mkdtempSync(join(tmpdir(), 'chaos-')), 'faults.json');
  readonly #watcher = new WatcherProcess();
  readonly pods: RunningPod[] = [];
  #load: Load | undefined;

  constructor() {
    process.env['CHAOS_FAULTS'] = this.#faults;
    this.shim = new CrashingShim({
      state: this.disk.state,
      nodeArgs: [`--import=${join(process.cwd(), 'dist/tools/chaos-preload.js')}`],
    });
  }

  async begin(): Promise<void> {
    this.disk.mount();
    this.inject(NO_FAULTS);
    if (!(await this.shim.start())) throw new Error('the shim ended at its start');
    await this.makePods();
  }

  async end(): Promise<void> {
    await this.removePods();
    await this.#watcher.end();
    this.direct.close();
    await this.shim.stop();
    this.disk.unmount();
  }

  async makePods(): Promise<void> {
    for (const name of ['web', 'db']) this.pods.push(await runPod(this.direct, { ...POD, name }));
  }

  async removePods(): Promise<void> {
    for (const pod of this.pods.splice(0)) await pod.remove();
  }

  /** Replaces the process and the pods after a failed round. */
  async renew(): Promise<void> {
    this.inject(NO_FAULTS);
    await this.containerd.start();
    if (this.shim.isAlive) await this.shim.stop();
    if (!(await this.shim.start())) throw new Error('the shim ended at its start');
    await this.removePods();
    await this.makePods();
  }

  /** Sets the shim's file system and clock faults. They begin when it reads the file, a few milliseconds later. */
  inject(faults: Partial<Faults>): void {
    writeFileSync(this.#faults, JSON.stringify({ ...NO_FAULTS, ...faults }));
  }

  get load(): Load {
    if (this.#load === undefined) throw new Error('no load is running');
    return this.#load;
  }

  startLoad(random: Random, updates: Updates): void {
    this.#load = new Load(this.shim, this.pods, { random, updates });
  }

  watch(): Promise<PodWatcher> {
    const [pod] = this.pods;
    if (pod === undefined) throw new Error('there is no pod');
    return this.#watcher.watch(pod);
  }

  /** Waits until the shim is ready and its journal has nothing unfinished. */
  async settled(): Promise<void> {
    let left = '';
    for (const limit = Date.now() + SETTLED_MS; Date.now() < limit; ) {
      left = await this.#unsettled();
      if (left === '') return;
      await pause(POLL_MS);
    }
    throw new Error(`not settled within ${SETTLED_MS / 1000} s: ${left}`);
  }

  async #unsettled(): Promise<string> {
    const request = { verbose: true };
    const answer = await this.shim.cri
      .call<{ info: Record<string, string> }>('Status', request)
      .catch((error: unknown) => String(error));
    if (typeof answer === 'string') return answer;
    const status = JSON.parse(answer.info['cri-resize-shim'] ?? '{}') as {
      checks?: { ready: boolean; says: string }[];
    };
    const failing = (status.checks ?? []).filter(({ ready }) => !ready).map(({ says }) => says);
    const open = this.shim
      .records()
      .filter(({ transaction, holds }) => transaction !== undefined || holds !== undefined);
    return [...failing, ...open.map((record) => JSON.stringify(record))].join('; ');
  }

  /** Resizes each pod back to its start, which has to succeed once the fault is over. */
  async reset(): Promise<void> {
    for (const pod of this.pods)
      await this.shim.api.call(
        'ResizePod',
        { pod: { sandbox_id: pod.sandboxId }, containers: START },
        Date.now() + SETTLED_MS,
      );
  }
}
