import { crashPoints } from '../../src/core/crash-points.ts';
import type { CriClient } from '../support/cri/client.ts';
import type { RunningPod } from '../support/cri/pod.ts';
import { runPod } from '../support/cri/pod.ts';
import { PodWatcher } from '../watch/watcher.ts';
import type { CrashingShim, Record } from './crashing-shim.ts';
import { sizesIn } from './crashing-shim.ts';
import { assertReported, assertWithinPod, difference, processesOf, valuesOf } from './pod-values.ts';
import type { Scenario, Stage, Values } from './scenario.ts';

/** The result of one scenario. */
export interface ScenarioReport {
  readonly name: string;
  /** Crash points at which the shim was killed. */
  readonly points: readonly string[];
  /** Crash points of a recovery at which it was killed again. */
  readonly recoveries: readonly string[];
  readonly failures: readonly PointFailure[];
  readonly seconds: number;
}

/** A failure, and the crash point at which the shim was killed. */
export interface PointFailure {
  readonly point: string;
  readonly what: string;
}

/** Crash points whose number depends on the kernel's progress. Only the first one is tested. */
const VARYING = /^cgroup-write-\w+ memory\.(high|reclaim)#(?!1$)/;

const WITHIN = new Set(['journal-write-synced', 'journal-write-renamed', 'journal-remove-unlinked']);

/** Kills a shim at each crash point of a scenario, starts it again, and checks the pod and the journal each time. */
export class Campaign {
  readonly #shim: CrashingShim;
  readonly #direct: CriClient;
  readonly #scenario: Scenario;
  readonly #pairs: Set<string>;
  #pod: RunningPod | undefined;
  #watcher: PodWatcher | undefined;
  /** The values and sizes of volumes at the start, the processes, and all values that the pod may have. */
  #start: Values = {};
  #processes: Values = {};
  #allowed: Values[] = [];
  /** Crash points that only occur right after the start of a shim. */
  #onlyAtFirst: ReadonlySet<string> = new Set();
  readonly #failures: PointFailure[] = [];

  /** @param pairs crash points that follow each other in recoveries, for all scenarios */
  constructor(shim: CrashingShim, direct: CriClient, scenario: Scenario, pairs: Set<string>) {
    this.#pairs = pairs;
    this.#shim = shim;
    this.#direct = direct;
    this.#scenario = scenario;
  }

  async run(): Promise<ScenarioReport> {
    const startedAt = Date.now();
    let points: readonly string[] = [];
    let recoveries: readonly string[] = [];
    await this.#trying('without a kill', async () => {
      points = await this.#unharmed();
      recoveries = await this.#killAtEach(points);
      await this.#assertStoredLimits();
      await this.#leave();
    });
    const seconds = Math.round((Date.now() - startedAt) / 1000);
    return { name: this.#scenario.name, points, recoveries, failures: this.#failures, seconds };
  }

  /**
   * Runs the scenario without a kill, once on a new pod, once with a new shim, which calls methods that the runtime may
   * lack, and once more. Records the crash points, and the values that the pod has at the end.
   */
  async #unharmed(): Promise<readonly string[]> {
    // A reset of changed requests leaves them in the journal, where all further runs find them.
    await this.#enter();
    await this.#act(this.#scenario.act);
    await this.#enter();
    await this.#shim.restart();
    const points = (await this.#pass()).filter((point) => !VARYING.test(point) && this.#isFresh(point));
    await this.#enter();
    const again = new Set(await this.#pass());
    this.#allowed.push({ ...this.#start, ...this.#scenario.target });
    this.#onlyAtFirst = new Set(points.filter((point) => !again.has(point)));
    return points;
  }

  /** Returns the crash points that the shim passes on its way to the target. */
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
    // The longest recovery is killed at its own crash points. Points within a journal write are the same in all
    // scenarios.
    const fresh = this.#newPairs(longest.recovery);
    for (const again of fresh)
      await this.#trying(`${longest.point}, ${again}`, async () => {
        await this.#kill(longest.point, again);
      });
    return fresh;
  }

  /** Whether no scenario has tested this point yet. Points within one journal write are the same in all scenarios. */
  #isFresh(point: string): boolean {
    const name = point.split('#')[0] ?? '';
    if (!WITHIN.has(name)) return true;
    const isNew = !this.#pairs.has(name);
    this.#pairs.add(name);
    return isNew;
  }

  /** Returns the points that follow other points than in earlier scenarios. */
  #newPairs(recovery: readonly string[]): readonly string[] {
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
      this.#failures.push({ point, what: [message, ...this.#shim.warnings()].join('\n') });
      // The next point needs a new pod.
      this.#shim.disarm();
      if (!this.#shim.isAlive) await this.#shim.start();
      await this.#leave().catch((failure: unknown) =>
        this.#failures.push({ point, what: `cleanup: ${String(failure)}` }),
      );
    }
  }

  /** Kills the shim at a point, and optionally at a point of its recovery. Returns the points of the last recovery. */
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
    if (!(await this.#shim.start())) throw new Error('the shim ended during its recovery');
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

  /** Expects the values of the start, of the target, or of a state between two calls of the caller. */
  async #assertRecovered(): Promise<void> {
    const { pod } = this.#stage;
    const found = valuesOf(pod);
    if (!this.#allowed.some((values) => difference(found, values) === '')) {
      const differences = this.#allowed.map((values) => difference(found, values));
      throw new Error(`between two states: ${differences.join('; or: ')}`);
    }
    await this.#assertWhole();
  }

  /** Checks the rules that apply whenever no resize is in progress. */
  async #assertWhole(): Promise<void> {
    const { pod } = this.#stage;
    const isOpen = ({ transaction, holds = [] }: Record): boolean => transaction !== undefined || holds.length > 0;
    const open = this.#shim.records().filter(isOpen);
    if (open.length > 0) throw new Error(`the journal still has ${JSON.stringify(open)}`);
    if (this.#shim.leftovers().length > 0)
      throw new Error(`leftover files in the state folder: ${this.#shim.leftovers().join(', ')}`);
    if (pod.oomKills() !== 0) throw new Error(`${pod.oomKills()} processes were killed by the OOM killer`);
    assertWithinPod(valuesOf(pod));
    const others = difference(processesOf(pod), this.#processes);
    if (others !== '') throw new Error(`changed processes: ${others}`);
    await assertReported(this.#shim.cri, pod, 'ContainerStatus');
    await assertReported(this.#direct, pod, 'the store of the runtime');
  }

  /**
   * The runtime applies all its stored values with any update: an update without limits would bring back old ones. (The
   * updates of the CPU manager are of cpusets, which the test node's kernel lacks.)
   */
  async #assertStoredLimits(): Promise<void> {
    const { pod } = this.#stage;
    const before = valuesOf(pod);
    for (const id of pod.containers.values()) {
      const { cpu_shares } = (await this.#direct.containerStatus(id)).resources!.linux!;
      await this.#direct.updateContainer(id, { cpu_shares });
    }
    const changed = difference(valuesOf(pod), before);
    if (changed !== '') throw new Error(`an update without limits changed ${changed}`);
  }

  #assertTarget(): void {
    const left = difference(valuesOf(this.#stage.pod), { ...this.#start, ...this.#scenario.target });
    if (left !== '') throw new Error(`not at the target: ${left}`);
    const expected = JSON.stringify(this.#scenario.allocated ?? {});
    const record = this.#shim.records().find(({ podUid }) => podUid === this.#stage.pod.uid);
    const stored = JSON.stringify(sizesIn(record ?? { volumes: {} }));
    if (stored !== expected) throw new Error(`the journal has the sizes ${stored}: expected ${expected}`);
  }

  async #act(act: (stage: Stage) => Promise<unknown>): Promise<void> {
    const { rejected } = this.#scenario;
    try {
      await act(this.#stage);
    } catch (error) {
      if (rejected?.test(String(error)) === true) return;
      throw error;
    } finally {
      this.#scenario.after?.(this.#stage);
    }
    if (rejected !== undefined) throw new Error('the call was not rejected');
  }

  get #stage(): Stage {
    if (this.#pod === undefined) throw new Error('the scenario has no pod');
    const pod = this.#pod;
    const answered = (): void => {
      const values = valuesOf(pod);
      if (!this.#allowed.some((known) => difference(values, known) === '')) this.#allowed.push(values);
    };
    return { shim: this.#shim, direct: this.#direct, pod, answered };
  }

  /** Makes a pod, or resets it to its start. */
  async #enter(): Promise<void> {
    if (this.#scenario.oneUse === true) await this.#leave();
    if (this.#pod === undefined) await this.#makePod();
    else await this.#reset();
    await this.#scenario.prepare?.(this.#stage);
  }

  async #makePod(): Promise<void> {
    // Creates the pod directly, because the processes of the shim are killed.
    this.#pod = await runPod(this.#direct, { name: 'web', containers: [], ...this.#scenario.pod });
    // The shim writes the policies of volumes to the journal when it first sees a pod: not during a resize.
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
    const milli = (shares = 0): number => Math.ceil((shares * 1000) / 1024);
    // Requests that differ from those of the start would stay in the journal.
    const sum = containers.reduce((all, { resources }) => all + milli(resources.cpu_shares), 0);
    return {
      pod: { sandbox_id: this.#stage.pod.sandboxId },
      resources: { limits: amounts('pod'), requests: { cpu: `${sum}m` } },
      containers: Object.fromEntries(
        containers.map(({ name, resources }) => [
          name,
          { limits: amounts(name), requests: { cpu: `${milli(resources.cpu_shares)}m` } },
        ]),
      ),
    };
  }

  /** Removes the pod, and checks the report of its watcher. */
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

/** The cgroup writes and transaction calls that must be tested, each before and after its effect. */
const TARGETS: Readonly<{ [kind: string]: readonly string[] }> = {
  'cgroup-write': [
    ...['cpu.max', 'cpu.weight', 'memory.max', 'memory.high', 'memory.high max', 'memory.reclaim'],
    ...['memory.low', 'memory.min'],
  ],
  'backend-call': ['UpdateContainerResources', 'UpdatePodSandboxResources'],
};

/**
 * Returns the crash points at which no scenario was killed. A new one in the source is returned until a scenario passes
 * it.
 */
export function unmetPoints(scenarios: readonly ScenarioReport[]): readonly string[] {
  const met = new Set(
    scenarios.flatMap(({ points, recoveries }) =>
      [...points, ...recoveries].map((point) => point.replace(/#\d+$/, '')),
    ),
  );
  const required = crashPoints.flatMap((point) => {
    const targets = TARGETS[point.replace(/-(before|after)$/, '')];
    return targets === undefined ? [point] : targets.map((target) => `${point} ${target}`);
  });
  // At `serving` the shim has only started, and no resize is in progress.
  return required.filter((point) => point !== 'serving' && !met.has(point));
}

/** Returns a readable table of scenarios with the numbers of their points. */
export function crashTable(title: string, scenarios: readonly ScenarioReport[]): string {
  const rows = scenarios.map(({ name, points, recoveries, failures, seconds }) => [
    name,
    String(points.length),
    String(recoveries.length),
    String(failures.length),
    `${seconds} s`,
  ]);
  const sum = (of: (scenario: ScenarioReport) => number): string =>
    String(scenarios.reduce((all, scenario) => all + of(scenario), 0));
  const all = [
    `${scenarios.length} scenarios`,
    sum(({ points }) => points.length),
    sum(({ recoveries }) => recoveries.length),
    sum(({ failures }) => failures.length),
    `${sum(({ seconds }) => seconds)} s`,
  ];
  const lines = [[title, 'points', 'in recovery', 'failed', 'time'], ...rows, all];
  const widths = [0, 1, 2, 3, 4].map((column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  return lines
    .map((line) =>
      line
        .map((cell, column) => (column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0)))
        .join('  '),
    )
    .join('\n');
}
