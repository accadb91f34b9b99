import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { type Cluster, until } from '../cluster.ts';
import type { ApiWatch } from '../table/observe.ts';
import type { Pod } from '../table/pod.ts';
import { isResized } from '../table/row.ts';
import { type KubernetesEvent, PODS } from '../table/run-row.ts';
import { cgroupOf, MemoryUsers } from './memory-users.ts';
import { AUTOSCALERS, podOf, recommendation, replicaSet, verticalPodAutoscaler } from './objects.ts';
import type { PodResult } from './result.ts';
import type { Scenario } from './scenarios.ts';

const REPLICA_SETS = '/apis/apps/v1/namespaces/default/replicasets';
const EVENT_LIMIT_MS = 10_000;

/** The parts that the scenarios of a side share. */
export interface Stage {
  readonly cluster: Cluster;
  readonly pods: ApiWatch<Pod>;
  readonly events: ApiWatch<KubernetesEvent>;
  /** The folder of the files, on a disk of the host. */
  readonly folder: string;
  /** Interval of the updater's rounds, in seconds. */
  readonly interval: number;
}

/**
 * Creates the pods of a scenario, lets them use memory, recommends less, and waits until each pod is resized in place
 * or evicted. Leaves nothing behind.
 */
export async function runScenario(stage: Stage, scenario: Scenario, id: string): Promise<PodResult[]> {
  const run = new ScenarioRun(stage, scenario, `${scenario.name}-${id}`);
  try {
    await run.prepare();
    return await run.recommend();
  } finally {
    await run.end();
  }
}

class ScenarioRun {
  readonly #names: readonly string[];
  readonly #users = new Map<string, MemoryUsers>();

  constructor(
    readonly stage: Stage,
    readonly scenario: Scenario,
    readonly name: string,
  ) {
    this.#names = Array.from({ length: scenario.replicas }, (_, index) => `${name}-${index}`);
  }

  /** Returns once kubelet's own figures show that the memory is in use. */
  async prepare(): Promise<void> {
    const { cluster, pods, folder } = this.stage;
    const set = await cluster.api.create<Pod>(REPLICA_SETS, replicaSet(this.name, this.scenario));
    const owner = { name: this.name, uid: set.metadata.uid };
    for (const name of this.#names) await cluster.api.create(PODS, podOf(name, owner, this.scenario));
    const areRunning = (): boolean => this.#names.every((name) => isRunning(pods.get(name)));
    if (!(await pods.until(areRunning, 180_000))) throw new Error('the pods do not run after 180 s');
    for (const name of this.#names) this.#users.set(name, await MemoryUsers.of(this.#pod(name), this.scenario, folder));
    await until(() => this.#isMeasured(), 'kubelet to measure the memory in use', 90, 1000);
  }

  #pod(name: string): Pod {
    const pod = this.stage.pods.get(name);
    if (pod === undefined) throw new Error(`the API server has no pod ${name}`);
    return pod;
  }

  /** Whether cAdvisor's figure of each pod is above the recommendation, as in a pod that has run for a while. */
  async #isMeasured(): Promise<boolean> {
    const { pods } = await this.stage.cluster.kubelet.get<Summary>('/stats/summary');
    const least = this.scenario.containers.reduce((sum, { uses, to }) => sum + (uses.length === 0 ? 0 : to * MiB), 0);
    return this.#names.every((name) => {
      const used = pods.find(({ podRef }) => podRef.name === name)?.memory?.usageBytes ?? 0;
      return used > least;
    });
  }

  async recommend(): Promise<PodResult[]> {
    const { api } = this.stage.cluster;
    await api.create(AUTOSCALERS, verticalPodAutoscaler(this.name));
    await api.merge(`${AUTOSCALERS}/${this.name}/status`, recommendation(this.scenario));
    return Promise.all(this.#names.map((name) => this.#resultOf(name)));
  }

  /** Waits for the updater's patch and then for its outcome, two rounds at most each. */
  async #resultOf(name: string): Promise<PodResult> {
    const { pods, interval } = this.stage;
    const { metadata } = this.#pod(name);
    const isPatched = (): boolean => (pods.get(name)?.metadata.generation ?? 0) > metadata.generation;
    const limit = (2 * interval + 30) * 1000;
    if (!(await pods.until(isPatched, limit))) return { end: 'not patched', ms: limit, kills: 0 };
    const start = performance.now();
    const since = (): number => Math.round(performance.now() - start);
    const deferred = this.#deferred(metadata.uid).then((is) => (is ? since() : undefined));
    const isGone = (): boolean => pods.get(name)?.metadata.deletionTimestamp !== undefined || !pods.get(name);
    const isOver = await pods.until(() => isGone() || isResized(this.#pod(name)), limit);
    const ms = since();
    const end = !isOver ? 'neither' : isGone() ? 'evicted' : 'in place';
    const kills = killsOf(pods.get(name));
    await this.#users.get(name)?.end();
    const deferredMs = this.scenario.fits ? undefined : await deferred;
    return { end, ms, kills, ...(deferredMs !== undefined && { deferredMs }) };
  }

  /** Whether the event has arrived within twice the required time. */
  #deferred(uid: string): Promise<boolean> {
    const { events } = this.stage;
    if (this.scenario.fits) return Promise.resolve(false);
    return events.until(
      () => events.all.some((event) => event.reason === 'MemoryDecreaseDeferred' && event.involvedObject.uid === uid),
      EVENT_LIMIT_MS,
    );
  }

  async end(): Promise<void> {
    const { cluster, pods } = this.stage;
    for (const users of this.#users.values()) await users.end();
    await cluster.api.delete(`${AUTOSCALERS}/${this.name}`).catch(() => undefined);
    await cluster.api.delete(`${REPLICA_SETS}/${this.name}?propagationPolicy=Orphan`).catch(() => undefined);
    for (const name of this.#names) await cluster.api.delete(`${PODS}/${name}`).catch(() => undefined);
    if (!(await pods.until(() => this.#names.every((name) => pods.get(name) === undefined), 120_000)))
      throw new Error('deleted pods still exist after 120 s');
  }
}

interface Summary {
  readonly pods: readonly {
    readonly podRef: { readonly name: string };
    readonly memory?: { readonly usageBytes?: number };
  }[];
}

const isRunning = (pod: Pod | undefined): boolean =>
  pod?.status.phase === 'Running' &&
  (pod.status.containerStatuses ?? []).every(({ state }) => state.running !== undefined);

/** Returns a pod cgroup's OOM kills: from the kernel's counter, or the containers' states if it is gone. */
function killsOf(pod: Pod | undefined): number {
  if (pod === undefined) return 0;
  const file = join(cgroupOf(pod), 'memory.events');
  const counted = existsSync(file) ? Number(/^oom_kill (\d+)$/m.exec(readFileSync(file, 'utf8'))?.[1]) : 0;
  const reported = (pod.status.containerStatuses ?? []).filter(({ state, lastState }) =>
    [state, lastState].some((one) => one?.terminated?.reason === 'OOMKilled'),
  ).length;
  return Math.max(counted, reported);
}
