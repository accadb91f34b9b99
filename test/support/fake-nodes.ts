import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Ended, Host } from '../../src/install/rollout/host.ts';
import { readOptions } from '../../src/install/rollout/options.ts';
import { contextOf } from '../../src/install/rollout/context.ts';
import { type RolloutContext, keepInstalled, leave } from '../../src/install/rollout/roll-out.ts';
import { ClusterApi } from './fake-cluster-api.ts';

/** The outcome of work on a fake node. */
export interface Behaviour {
  readonly install?: () => Ended | Promise<Ended>;
  readonly uninstall?: () => Ended;
  readonly look?: Ended;
  readonly kubeletStart?: () => number;
}

export const done: Ended = { code: 0, lines: [] };
const wouldInstall: Ended = { code: 0, lines: ['would: set …'] };

/** A cluster with a fake API server, which the installer calls over HTTP, and fake hosts. */
export class FakeCluster {
  readonly folder = mkdtempSync(join(tmpdir(), 'cluster-'));
  readonly api = new ClusterApi();
  /** The work that was done on hosts, in order. */
  readonly work: string[] = [];
  readonly nodes: FakeNode[] = [];

  async start(): Promise<this> {
    await this.api.start();
    return this;
  }

  async stop(): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.kill()));
    await this.api.stop();
    rmSync(this.folder, { recursive: true });
  }

  /** Creates a node with the label and its pod, which {@link FakeNode.start} starts. */
  node(name: string, behaviour: Behaviour = {}, times: Partial<RolloutContext['times']> = {}): FakeNode {
    this.api.set(name, { labels: { 'cri-resize-shim.io/install': 'true' } });
    const node = new FakeNode(this, name, behaviour, times);
    this.nodes.push(node);
    return node;
  }
}

export class FakeNode {
  readonly messages: string[] = [];
  isInstalled = false;
  isReady = false;
  readonly #stop = new AbortController();
  readonly #end = new AbortController();
  readonly #parts: RolloutContext;
  #running: Promise<unknown> = Promise.resolve();

  constructor(
    readonly cluster: FakeCluster,
    readonly name: string,
    readonly behaviour: Behaviour,
    times: Partial<RolloutContext['times']>,
  ) {
    const kubeconfig = cluster.api.kubeconfig(join(cluster.folder, `kubeconfig-${name}`));
    const flags = ['--namespace=cri-resize-shim', '--label=cri-resize-shim.io/install=true', '--lease-duration=2s'];
    const options = readOptions([`--node-name=${name}`, ...flags, `--kubeconfig=${kubeconfig}`]);
    const parts = contextOf(options, undefined, (line) => void this.messages.push(line));
    this.#parts = {
      ...parts,
      ...{ host: this.#host(), stage: () => Promise.resolve(), unstage: () => Promise.resolve(), random: () => 0 },
      turns: { ...parts.turns, random: () => 0 },
      markReady: (isReady) => Promise.resolve(void (this.isReady = isReady)),
      times: { ready: 2000, retry: 600_000, answer: 3000, poll: 20, ...times },
    };
  }

  /** Starts the pod. */
  start(): this {
    const running = keepInstalled(this.#parts, this.#stop.signal, this.#end.signal);
    this.#running = running.catch((error: unknown) => {
      if (!this.#stop.signal.aborted) throw error;
    });
    return this;
  }

  /** Sends SIGTERM. Resolves when the pod has ended. */
  async terminate(): Promise<void> {
    this.#stop.abort(new Error('ended by SIGTERM'));
    await this.#running;
    await leave(this.#parts, this.#end.signal);
  }

  /** Ends the grace period of the pod. */
  timeUp(): void {
    this.#end.abort(new Error('no more time'));
  }

  async kill(): Promise<void> {
    this.#stop.abort(new Error('killed'));
    this.#end.abort(new Error('killed'));
    await this.#running;
  }

  #host(): Host {
    const { cluster, name, behaviour } = this;
    const carriedOut = async (what: string, work: () => Ended | Promise<Ended>): Promise<Ended> => {
      cluster.work.push(`${name}: ${what}`);
      const ended = await work();
      if (ended.code === 0) this.isInstalled = what === 'install';
      cluster.work.push(`${name}: ${what} ${ended.code}`);
      return ended;
    };
    return {
      resizectl: async ([what, flag]) => {
        if (flag === '--dry-run') {
          if (behaviour.look !== undefined) return behaviour.look;
          return this.isInstalled === (what === 'install') ? done : wouldInstall;
        }
        return what === 'install'
          ? carriedOut(what, behaviour.install ?? (() => done))
          : carriedOut('uninstall', behaviour.uninstall ?? (() => done));
      },
      idle: () => Promise.resolve(),
      kubeletStart: () => Promise.resolve(behaviour.kubeletStart?.() ?? 0),
    };
  }
}
