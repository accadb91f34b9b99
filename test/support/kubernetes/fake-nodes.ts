import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { contextOf, type Outside, type RolloutContext } from '../../../src/install/rollout/context.ts';
import type { CommandResult, Host, ShimRun } from '../../../src/install/rollout/host.ts';
import { readOptions } from '../../../src/install/rollout/options.ts';
import { keepInstalled, leave } from '../../../src/install/rollout/roll-out.ts';
import type { Drift } from '../../../src/kubelet/endpoint/drift.ts';
import { FakeClusterApi } from './fake-cluster-api.ts';

/** The results of the work on a fake node. */
export interface Behaviour {
  readonly install?: () => CommandResult | Promise<CommandResult>;
  readonly uninstall?: () => CommandResult | Promise<CommandResult>;
  readonly look?: CommandResult;
  /** Copies the program to the host. */
  readonly stage?: () => void;
  /** Waits for another resizectl on the host. */
  readonly idle?: () => Promise<void>;
  readonly kubeletStart?: () => number;
  /** Whether kubelet uses the shim. */
  readonly drift?: () => Drift;
  readonly repairsDrift?: boolean;
  /** Returns whether the shim runs, and an identifier of that run. */
  readonly shim?: () => ShimRun;
  /** Further flags of the installer. */
  readonly flags?: readonly string[];
  readonly labels?: Readonly<Record<string, string>>;
}

export const done: CommandResult = { code: 0, lines: [] };
/** The Lease does not expire during a test, although the pod may be delayed on a busy machine. */
const LEASE = '--lease-duration=1h';
const wouldInstall: CommandResult = { code: 0, lines: ['would: set …'] };

/** The options that the pods of a cluster share. */
interface ClusterSettings {
  readonly random: () => number;
  /** Replaces the requests by HTTP and the clock of this machine. */
  readonly outside?: (api: FakeClusterApi) => Outside;
  readonly times?: Omit<RolloutContext['times'], 'spread'>;
}

/** A cluster whose nodes are objects. The installer's requests to the API server use HTTP, and the hosts are fakes. */
export class FakeCluster {
  readonly folder = mkdtempSync(join(tmpdir(), 'cluster-'));
  readonly api = new FakeClusterApi();
  /** The work that was done on hosts, in order. */
  readonly work: string[] = [];
  readonly nodes: FakeNode[] = [];

  constructor(readonly settings: ClusterSettings = { random: () => 0 }) {}

  async start(): Promise<this> {
    await this.api.start();
    return this;
  }

  async stop(): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.kill()));
    await this.api.stop();
    rmSync(this.folder, { recursive: true });
  }

  /** Adds a node with the label, and its pod. */
  node(name: string, behaviour: Behaviour = {}, times: Partial<RolloutContext['times']> = {}): FakeNode {
    this.api.set(name, { labels: { 'cri-resize-shim.io/install': 'true', ...behaviour.labels } });
    const node = new FakeNode(this, name, behaviour, times);
    this.nodes.push(node);
    return node;
  }
}

export class FakeNode {
  readonly messages: string[] = [];
  /** Number of times that the pod has checked kubelet. */
  looks = 0;
  isInstalled = false;
  isReady = false;
  /** Whether the program is on the host. */
  isStaged = false;
  readonly #stop = new AbortController();
  readonly #end = new AbortController();
  readonly #parts: RolloutContext;
  #isGone = false;
  #running: Promise<unknown> = Promise.resolve();

  constructor(
    readonly cluster: FakeCluster,
    readonly name: string,
    readonly behaviour: Behaviour,
    times: Partial<RolloutContext['times']>,
  ) {
    const { random, outside, times: others } = cluster.settings;
    const kubeconfig =
      outside === undefined ? cluster.api.kubeconfig(join(cluster.folder, `kubeconfig-${name}`)) : 'none';
    const flags = ['--namespace=cri-resize-shim', '--label=cri-resize-shim.io/install=true', LEASE];
    const all = [`--node-name=${name}`, ...flags, `--kubeconfig=${kubeconfig}`, ...(behaviour.flags ?? [])];
    const parts = contextOf(
      readOptions(all),
      undefined,
      (line) => void this.messages.push(line),
      outside === undefined ? undefined : this.#mortal(outside(cluster.api)),
    );
    // No test waits for it in real time.
    const spread = outside === undefined ? 0 : parts.times.spread;
    this.#parts = {
      ...parts,
      ...{ host: this.#host(), random },
      stage: () =>
        new Promise((resolve) => {
          behaviour.stage?.();
          this.isStaged = true;
          resolve();
        }),
      unstage: () => Promise.resolve(void (this.isStaged = false)),
      turns: { ...parts.turns, random },
      markReady: (isReady) => Promise.resolve(void (this.isReady = isReady)),
      drift: () =>
        new Promise((resolve) => {
          this.looks += 1;
          resolve(behaviour.drift?.() ?? { state: 'shim', note: '' });
        }),
      repairsDrift: behaviour.repairsDrift ?? false,
      times: {
        spread,
        ready: 600_000,
        retry: 600_000,
        answer: 60_000,
        poll: 20,
        look: 20,
        soak: 200,
        ...others,
        ...times,
      },
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

  /** Simulates the end of the pod's grace period. */
  timeUp(): void {
    this.#end.abort(new Error('the grace period is over'));
  }

  /** Simulates the end of the process in virtual time: it makes no more requests. Programs on the host continue. */
  vanish(): void {
    this.#isGone = true;
  }

  #mortal({ api, clock }: Outside): Outside {
    return {
      api: (request) => (this.#isGone ? new Promise(() => undefined) : api(request)),
      clock: {
        now: () => clock.now(),
        wallTime: () => clock.wallTime(),
        after: (ms, action) =>
          clock.after(ms, () => {
            if (!this.#isGone) action();
          }),
      },
    };
  }

  async kill(): Promise<void> {
    this.#stop.abort(new Error('killed'));
    this.#end.abort(new Error('killed'));
    await this.#running;
  }

  #host(): Host {
    const { cluster, name, behaviour } = this;
    const carriedOut = async (
      what: string,
      work: () => CommandResult | Promise<CommandResult>,
    ): Promise<CommandResult> => {
      cluster.work.push(`${name}: ${what}`);
      const ended = await work();
      if (ended.code === 0) this.isInstalled = what === 'install';
      cluster.work.push(`${name}: ${what} ${ended.code}`);
      return ended;
    };
    return {
      resizectl: async ([what, flag], after) => {
        if (flag === '--dry-run') {
          if (behaviour.look !== undefined) return behaviour.look;
          return this.isInstalled === (what === 'install') ? done : wouldInstall;
        }
        if (what === 'install') return carriedOut(what, behaviour.install ?? (() => done));
        const ended = await carriedOut('uninstall', behaviour.uninstall ?? (() => done));
        if (after === 'unstage') this.isStaged = false;
        return ended;
      },
      idle: () => behaviour.idle?.() ?? Promise.resolve(),
      kubeletStart: () => Promise.resolve(behaviour.kubeletStart?.() ?? 0),
      shim: () => Promise.resolve(behaviour.shim?.() ?? { isActive: true, run: '1' }),
    };
  }
}
