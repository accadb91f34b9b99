import type { CriClient } from '../support/cri/client.ts';
import { type RunningPod, runPod } from '../support/cri/pod.ts';
import { PodWatcher } from '../watch/watcher.ts';
import { type CrashingShim, sizesIn } from './crashing-shim.ts';
import { assertReported, assertWithinPod, difference, processesOf, valuesOf } from './look.ts';
import type { Scenario, Stage, Values } from './scenario.ts';

/** What came of one scenario. */
export interface ScenarioReport {
  readonly name: string;
  /** Points at which the shim was killed. */
  readonly points: readonly string[];
  /** Points of a recovery at which it was killed once more. */
  readonly recoveries: readonly string[];
  readonly failures: readonly PointFailure[];
  readonly seconds: number;
}

/** What went wrong, and where the shim had been killed. */
export interface PointFailure {
  readonly point: string;
  readonly what: string;
}

/** Points of which there are as many as the kernel's progress takes: the first stands for the others. */
const VARYING = /^cgroup-write-\w+ memory\.(high|reclaim)#(?!1$)/;

const WITHIN = new Set(['journal-write-synced', 'journal-write-renamed', 'journal-remove-unlinked']);

/** Kills a shim at each point of a scenario, each time starting it anew and looking at the whole. */
export class Campaign {
  readonly #shim: CrashingShim;
  readonly #direct: CriClient;
  readonly #scenario: Scenario;
  readonly #pairs: Set<string>;
  #pod: RunningPod | undefined;
  #watcher: PodWatcher | undefined;
  /** Values, processes and sizes of volumes at the start; those that the pod may be found with. */
  #start: Values = {};
  #processes: Values = {};
  #allowed: Values[] = [];
  /** Points that only a shim passes that has learned nothing yet. */
  #onlyAtFirst: ReadonlySet<string> = new Set();
  readonly #failures: PointFailure[] = [];

  /** @param pairs of points that follow each other in recoveries, over all scenarios */
  constructor(shim: CrashingShim, direct: CriClient, scenario: Scenario, pairs: Set<string>) {
    this.#pairs = pairs;
    this.#shim = shim;
    this.#direct = direct;
    this.#scenario = scenario;
  }

  async run(): Promise<ScenarioReport> {
    const begun = Date.now();
    let points: readonly string[] = [];
    let recoveries: readonly string[] = [];
    await this.#trying('unharmed', async () => {
      points = await this.#unharmed();
      recoveries = await this.#killAtEach(points);
      await this.#assertStoreInForce();
      await this.#leave();
    });
    const seconds = Math.round((Date.now() - begun) / 1000);
    return { name: this.#scenario.name, points, recoveries, failures: this.#failures, seconds };
  }

  /**
   * Twice without being killed, the first time by a shim that has learned nothing yet (it does not ask a runtime twice for what that
   * does not have): what the points are, and where the pod has to get.
   */
  async #unharmed(): Promise<readonly string[]> {
    await this.#enter();
    await this.#shim.restart();
    const points = (await this.#pass()).filter((point) => !VARYING.test(point) && this.#isFresh(point));
    await this.#enter();
    const again = new Set(await this.#pass());
    this.#allowed.push({ ...this.#start, ...this.#scenario.target });
    this.#onlyAtFirst = new Set(points.filter((point) => !again.has(point)));
    return points;
  }

  /** Gives the points that it passes on its way to the target. */
  async #pass(): Promise<readonly string[]> {
    this.#shim.clearPassed();
    await this.#act(this.#scenario.act);
    const points = this.#shim.passed();
    this.#assertTarget();
    if (this.#scenario.pointless !== (points.length === 0 ? true : undefined))
      throw new Error(`${this.#scenario.name} passes ${points.length} points: ${points.join(', ')}`);
    await this.#assertWhole();
    return points;
  }

  async #killAtEach(points: readonly string[]): Promise<readonly string[]> {
    let longest: { readonly point: string; readonly recovery: readonly string[] } = { point: '', recovery: [] };
    for (const point of points) {
      await this.#trying(point, async () => {
        const recovery = await this.#kill(point);
        if (recovery.length > longest.recovery.length) longest = { point, recovery };
      });
    }
    // The one that has most to mend, killed once more at its points. What lies between two writes is the same in any scenario.
    const fresh = this.#followsAnew(longest.recovery);
    for (const again of fresh)
      await this.#trying(`${longest.point}, ${again}`, async () => {
        await this.#kill(longest.point, again);
      });
    return fresh;
  }

  /** What lies within one write of the journal is the same in all scenarios. */
  #isFresh(point: string): boolean {
    const name = point.split('#')[0] ?? '';
    if (!WITHIN.has(name)) return true;
    const isNew = !this.#pairs.has(name);
    this.#pairs.add(name);
    return isNew;
  }

  /** Those that come after another one than in earlier scenarios. */
  #followsAnew(recovery: readonly string[]): readonly string[] {
    return recovery.filter((point, index) => {
      const pair = [recovery[index - 1] ?? '', point].map((name) => name.split('#')[0]).join(', then ');
      const isNew = !this.#pairs.has(pair);
      this.#pairs.add(pair);
      return isNew || this.#scenario.everyRecovery === true;
    });
  }

  async #trying(point: string, attempt: () => Promise<void>): Promise<void> {
    try {
      await attempt();
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      this.#failures.push({ point, what: [message, ...this.#shim.complaints()].join('\n') });
      // Whatever is left of this pod is no start for the next point.
      this.#shim.disarm();
      if (!this.#shim.isAlive) await this.#shim.start();
      await this.#leave().catch((failure: unknown) =>
        this.#failures.push({ point, what: `clearing up: ${String(failure)}` }),
      );
    }
  }

  /** Gives the points of the recovery. */
  async #kill(point: string, again?: string): Promise<readonly string[]> {
    await this.#enter();
    if (this.#onlyAtFirst.has(point)) await this.#shim.restart();
    this.#shim.clearPassed();
    this.#shim.arm(point);
    await this.#scenario.act(this.#stage).catch(() => undefined);
    await this.#assertKilled(point);
    if (again !== undefined) {
      this.#shim.arm(again);
      if (await this.#shim.start()) await this.#scenario.meanwhile?.(this.#stage);
      await this.#assertKilled(again);
    }
    this.#shim.disarm();
    this.#shim.clearPassed();
    if (!(await this.#shim.start())) throw new Error('the shim has ended while it recovered');
    await this.#scenario.meanwhile?.(this.#stage);
    const recovery = this.#shim.passed().filter((passed) => !VARYING.test(passed));
    this.#scenario.after?.(this.#stage);
    await this.#assertRecovered();
    if (this.#scenario.repeat !== undefined) {
      await this.#act(this.#scenario.repeat);
      this.#assertTarget();
      await this.#assertWhole();
    }
    return recovery;
  }

  async #assertKilled(point: string): Promise<void> {
    if (this.#shim.isAlive && this.#shim.isArmed(point)) throw new Error(`${point} was not passed again`);
    await this.#shim.killed();
    assertWithinPod(valuesOf(this.#stage.pod));
  }

  /** The start or the target, or where a caller of several calls had got to. */
  async #assertRecovered(): Promise<void> {
    const { pod } = this.#stage;
    const found = valuesOf(pod);
    if (!this.#allowed.some((values) => difference(found, values) === '')) {
      const differences = this.#allowed.map((values) => difference(found, values));
      throw new Error(`between two states: ${differences.join('; or: ')}`);
    }
    await this.#assertWhole();
  }

  /** What has to hold whenever nothing is under way. */
  async #assertWhole(): Promise<void> {
    const { pod } = this.#stage;
    const open = this.#shim.records().filter(({ transaction }) => transaction !== undefined);
    if (open.length > 0) throw new Error(`the journal still has ${JSON.stringify(open)}`);
    if (this.#shim.leftovers().length > 0)
      throw new Error(`left in the state folder: ${this.#shim.leftovers().join(', ')}`);
    if (pod.oomKills() !== 0) throw new Error(`${pod.oomKills()} processes were killed by the OOM killer`);
    assertWithinPod(valuesOf(pod));
    const others = difference(processesOf(pod), this.#processes);
    if (others !== '') throw new Error(`other processes: ${others}`);
    await assertReported(this.#shim.cri, pod, 'ContainerStatus');
    await assertReported(this.#direct, pod, 'the store of the runtime');
  }

  /**
   * The runtime sends all that it has stored with any update: with one that sets no limit an old one would come back. (The CPU
   * manager's are of cpusets, which the test node's kernel has not.)
   */
  async #assertStoreInForce(): Promise<void> {
    const { pod } = this.#stage;
    const before = valuesOf(pod);
    for (const id of pod.containers.values()) {
      const { cpu_shares } = (await this.#direct.containerStatus(id)).resources!.linux!;
      await this.#direct.updateContainer(id, { cpu_shares });
    }
    const brought = difference(valuesOf(pod), before);
    if (brought !== '') throw new Error(`an update without limits brought ${brought}`);
  }

  #assertTarget(): void {
    const left = difference(valuesOf(this.#stage.pod), { ...this.#start, ...this.#scenario.target });
    if (left !== '') throw new Error(`not at the target: ${left}`);
    const wanted = JSON.stringify(this.#scenario.allocated ?? {});
    const record = this.#shim.records().find(({ podUid }) => podUid === this.#stage.pod.uid);
    const kept = JSON.stringify(sizesIn(record ?? { volumes: {} }));
    if (kept !== wanted) throw new Error(`the journal keeps the sizes ${kept}, and not ${wanted}`);
  }

  async #act(act: (stage: Stage) => Promise<unknown>): Promise<void> {
    const { refused } = this.#scenario;
    try {
      await act(this.#stage);
    } catch (error) {
      if (refused?.test(String(error)) === true) return;
      throw error;
    } finally {
      this.#scenario.after?.(this.#stage);
    }
    if (refused !== undefined) throw new Error('was not refused');
  }

  get #stage(): Stage {
    if (this.#pod === undefined) throw new Error('there is no pod');
    const pod = this.#pod;
    const answered = (): void => {
      const values = valuesOf(pod);
      if (!this.#allowed.some((known) => difference(values, known) === '')) this.#allowed.push(values);
    };
    return { shim: this.#shim, direct: this.#direct, pod, answered };
  }

  /** A pod at its start. */
  async #enter(): Promise<void> {
    if (this.#scenario.oneUse === true) await this.#leave();
    if (this.#pod === undefined) await this.#makePod();
    else await this.#reset();
    await this.#scenario.prepare?.(this.#stage);
  }

  async #makePod(): Promise<void> {
    // Past the shim, whose processes come and go.
    this.#pod = await runPod(this.#direct, { name: 'web', containers: [], ...this.#scenario.pod });
    // How volumes are sized is journalled when a pod is seen first: once, and so not in the middle of a resize.
    if (this.#scenario.pod.volumes !== undefined) await this.#shim.restart();
    this.#pod = (await this.#scenario.setUp?.(this.#stage)) ?? this.#pod;
    this.#start = valuesOf(this.#pod);
    this.#allowed = this.#allowed.length === 0 ? [this.#start] : this.#allowed;
    this.#processes = processesOf(this.#pod);
    this.#watcher = await PodWatcher.watch(this.#pod);
  }

  async #reset(): Promise<void> {
    const { pod, shim } = this.#stage;
    await this.#scenario.reset?.(this.#stage);
    if (difference(valuesOf(pod), this.#start) !== '') await shim.api.call('ResizePod', this.#toStart());
    const left = difference(valuesOf(pod), this.#start);
    if (left !== '') throw new Error(`not back at the start: ${left}`);
  }

  #toStart(): object {
    const { containers = [] } = this.#scenario.pod;
    const amounts = (whose: string): { cpu: string; memory: string } => {
      const [quota = '', period] = (this.#start[`${whose} cpu.max`] ?? '').split(' ');
      const cpu = quota === 'max' ? 'max' : `${Math.round((Number(quota) * 1000) / Number(period))}m`;
      return { cpu, memory: this.#start[`${whose} memory.max`] ?? '' };
    };
    const milli = (shares = 0): string => `${Math.ceil((shares * 1000) / 1024)}m`;
    const sum = containers.reduce((all, { resources }) => all + (resources.cpu_shares ?? 0), 0);
    return {
      pod: { sandbox_id: this.#stage.pod.sandboxId },
      resources: { limits: amounts('pod'), requests: { cpu: milli(sum) } },
      containers: Object.fromEntries(
        containers.map(({ name, resources }) => [
          name,
          { limits: amounts(name), requests: { cpu: milli(resources.cpu_shares) } },
        ]),
      ),
    };
  }

  /** The pod goes, and what its watcher has seen is looked at. */
  async #leave(): Promise<void> {
    const [pod, watcher] = [this.#pod, this.#watcher];
    this.#pod = undefined;
    this.#watcher = undefined;
    const seen = await watcher?.report();
    for (const violation of seen?.violations ?? [])
      this.#failures.push({ point: 'some', what: `above the pod's limit: ${violation}` });
    if (pod !== undefined) await this.#scenario.tearDown?.(pod);
    await pod?.remove();
  }
}
