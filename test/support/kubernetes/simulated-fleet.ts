import { Readable } from 'node:stream';
import type { Outside } from '../../../src/install/rollout/context.ts';
import type { CommandResult } from '../../../src/install/rollout/host.ts';
import { ApiRefusal, ApiUnreached } from '../../../src/kubernetes/client/errors.ts';
import { Random } from '../../chaos/random.ts';
import { FakeClock } from '../fake-clock.ts';
import type { FakeClusterApi } from './fake-cluster-api.ts';
import { type Behaviour, done, FakeCluster, type FakeNode } from './fake-nodes.ts';

/** How long the API server takes for a request, in milliseconds. */
const ANSWER_MS = 10;
/** How long an installation takes: docs/kubernetes.md says 10 to 20 s. */
const INSTALL_MS = 20_000;
const LEASE = '--lease-duration=5m';
const times = { ready: 300_000, retry: 600_000, answer: 60_000, poll: 2000, look: 20_000, soak: 300_000 };

/** A cluster in virtual time: the pods of all nodes in one process, with the pauses that they have in reality. */
export class SimulatedFleet {
  readonly clock = new FakeClock();
  readonly cluster: FakeCluster;
  /** Whether the API server is unreachable. */
  isAway = false;
  /** Virtual time of each request to the API server. */
  readonly requests: number[] = [];

  /** @param seed of all random numbers: the same one repeats a run */
  constructor(seed = 1) {
    const source = new Random(seed);
    this.cluster = new FakeCluster({ random: () => source.next(), outside: (api) => this.#outside(api), times });
  }

  get nodes(): readonly FakeNode[] {
    return this.cluster.nodes;
  }

  get api(): FakeClusterApi {
    return this.cluster.api;
  }

  node(name: string, { flags = [], install, uninstall, ...behaviour }: Behaviour = {}): FakeNode {
    const slowly = (work?: () => CommandResult | Promise<CommandResult>) => async (): Promise<CommandResult> => {
      await this.clock.sleep(INSTALL_MS);
      return work === undefined ? done : work();
    };
    const works = { install: slowly(install), uninstall: slowly(uninstall) };
    return this.cluster.node(name, { ...behaviour, ...works, flags: [LEASE, ...flags] });
  }

  /** Lets time pass until the pods of all nodes are ready. Rejects after `limitMs`. */
  installed(nodes: readonly FakeNode[], limitMs: number): Promise<void> {
    return this.clock.until(() => nodes.every(({ isReady }) => isReady), limitMs);
  }

  /** The maximum number of nodes that were changed at the same time. */
  get most(): number {
    let [now, most] = [0, 0];
    for (const line of this.cluster.work) most = Math.max(most, (now += line.endsWith('install') ? 1 : -1));
    return most;
  }

  /** Returns the maximum number of requests within a period, counted from a time on. Both are in milliseconds. */
  busiest(within: number, from: number): number {
    const counts = new Map<number, number>();
    for (const at of this.requests)
      if (at >= from) counts.set(Math.floor(at / within), (counts.get(Math.floor(at / within)) ?? 0) + 1);
    return Math.max(0, ...counts.values());
  }

  /** The API server and the clock, for a program that is no pod of a node. */
  get outside(): Outside {
    return this.#outside(this.api);
  }

  #outside(api: FakeClusterApi): Outside {
    const { clock, requests } = this;
    return {
      clock,
      api: async ({ method, path, query = {}, body: sent, signal }) => {
        requests.push(clock.passed);
        await clock.sleep(ANSWER_MS);
        signal.throwIfAborted();
        if (this.isAway) throw new ApiUnreached('connection refused');
        const { status, body } = api.answer(
          method,
          `${path}?${new URLSearchParams(query).toString()}`,
          sent === undefined ? '' : JSON.stringify(sent),
        );
        if (status >= 300) throw new ApiRefusal(status, (body as { message: string }).message);
        return Readable.from([JSON.stringify(body)]);
      },
    };
  }
}
