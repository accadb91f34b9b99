import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { execa } from 'execa';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { GROW_DELAY_MS } from '../../../src/sandbox/volumes/growth-timers.ts';
import type { ShimProcess } from '../../support/cri/shim.ts';
import { type Api, ApiError } from '../api.ts';
import { NODE, slowness, until } from '../cluster.ts';
import type { ApiWatch } from './observe.ts';
import { observePod, volumeSize } from './observe.ts';
import { manifestOf, type Pod, type Resources } from './pod.ts';
import type { Registry } from './registry.ts';
import {
  allStatuses,
  isDecided,
  isResized,
  type Observation,
  type Row,
  type Side,
  type SizeChange,
  type Step,
  thousandths,
} from './row.ts';
import { argumentsOf, observeSizes, PodPlaces, resizeConditions, specOf, watchOrder } from './sizes.ts';

export const PODS = '/api/v1/namespaces/default/pods';
export const EVENTS = '/api/v1/namespaces/default/events';

export interface KubernetesEvent {
  readonly metadata: { readonly name: string };
  readonly involvedObject: { readonly uid?: string };
  readonly reason: string;
}
/** Limit of one wait. kubelet retries a failed resize in 10 to 15 s. A busy machine starts a pod in a minute. */
const LIMIT_MS = 240_000 * slowness;
/** The socket of the shim's resize API. */
export const RESIZE_SOCKET = '/run/cri-resize-shim/resize.sock';

/** The part of kubelet's statistics that is used here. */
interface StatsSummary {
  readonly pods: readonly {
    readonly podRef: { readonly name: string };
    readonly memory?: { readonly usageBytes?: number };
  }[];
}

/** The parts that the rows of a configuration share. */
export interface Stage {
  readonly side: Side;
  readonly api: Api;
  /** kubelet's own server. */
  readonly kubelet: Api;
  readonly pods: ApiWatch<Pod>;
  readonly events: ApiWatch<KubernetesEvent>;
  readonly registry: Registry;
  /** Undefined without the shim. */
  readonly shim: () => ShimProcess | undefined;
  /** Whether kubelet resizes volumes itself. */
  readonly hasVolumeGate: boolean;
  /**
   * Kills the program that resizes volumes, and starts it again: kubelet or the shim.
   * @param onKilled called in between
   */
  readonly killResizer: (onKilled: () => void) => Promise<void>;
  /** A folder on the node, for the gates of all pods. */
  readonly folder: string;
}

/** Creates a row's pod, runs the steps, returns the observations. Stops after the first wait that times out. */
export async function runRow(stage: Stage, row: Row, name: string): Promise<Observation> {
  const run = new RowRun(stage, name, join(stage.folder, name));
  return run.all(row);
}

class RowRun {
  readonly #fields: Record<string, string> = {};
  #before: Pod | undefined;
  #missed = '';
  #answer = '';
  /** The changes of the last step `sizes`. */
  #order = '';
  /** Whether that step has killed the resizing program before it was done. */
  #killed = '';
  readonly #fifos: FileHandle[] = [];

  constructor(
    readonly stage: Stage,
    readonly name: string,
    readonly gates: string,
  ) {}

  async all({ pod, steps }: Row): Promise<Observation> {
    const { api, pods } = this.stage;
    mkdirSync(this.gates, { recursive: true });
    for (const gate of fifosOf(steps)) execFileSync('mkfifo', [join(this.gates, `${gate}.fifo`)]);
    const manifest = manifestOf(this.name, pod, NODE, this.gates, this.stage.hasVolumeGate);
    await api.create(`${PODS}?fieldValidation=Strict`, manifest);
    await pods.until(() => pods.get(this.name) !== undefined, LIMIT_MS);
    this.#before = this.#pod();
    for (const step of steps) {
      await this.#run(step);
      if (this.#missed !== '' && (step.kind === 'observe' || step.kind === 'observe sizes')) break;
    }
    for (const fifo of this.#fifos) await fifo.close();
    return this.#fields;
  }

  #pod(): Pod {
    const pod = this.stage.pods.get(this.name);
    if (pod === undefined) throw new Error(`the API server has no pod ${this.name}`);
    return pod;
  }

  async #run(step: Step): Promise<void> {
    if (this.#missed !== '' && step.kind !== 'observe' && step.kind !== 'observe sizes') return;
    switch (step.kind) {
      case 'until':
        if (step.side === undefined || step.side === this.stage.side) await this.#until(step);
        break;
      case 'event':
        await this.#event(step.reason);
        break;
      case 'resize':
        this.#before = this.#pod();
        this.#answer = await this.#patch('resize', step.spec);
        break;
      case 'debug':
        this.#answer = await this.#patch('ephemeralcontainers', { ephemeralContainers: [step.container] });
        break;
      case 'open':
        await this.#open(step.gate);
        break;
      case 'pull':
        if (step.answer === 'none yet') await this.stage.registry.asked();
        else this.stage.registry.release(step.answer);
        break;
      case 'resizectl':
        this.#answer = await this.#resizectl(step.changes);
        break;
      case 'volume':
        await this.#volume(step.name, step.mebibytes * MiB);
        break;
      case 'measured':
        await until(() => this.#isMeasured(), `kubelet to measure the pod ${this.name}`, LIMIT_MS / 1000 / slowness);
        break;
      case 'decided':
        await this.#decided();
        break;
      case 'sizes':
        await this.#sizes(step);
        break;
      case 'sized':
        await this.#sized(step.change, 'done');
        break;
      case 'store':
        this.#answer = await new PodPlaces(this.#pod()).store('app', step.volume, step.mebibytes);
        break;
      case 'empty':
        await new PodPlaces(this.#pod()).empty('app', step.volume);
        break;
      case 'observe sizes':
        this.#add(step.label, this.#sizesNow());
        break;
      case 'observe':
        this.#observe(step);
    }
  }

  async #isMeasured(): Promise<boolean> {
    const { pods } = await this.stage.kubelet.get<StatsSummary>('/stats/summary');
    return pods.some(({ podRef, memory }) => podRef.name === this.name && memory?.usageBytes !== undefined);
  }

  /** Also waits for kubelet's state files: kubelet reports the resize of an init container before it is applied. */
  async #decided(): Promise<void> {
    const isApplied = (pod: Pod): boolean => {
      const running = allStatuses(pod).filter(({ state }) => state.running !== undefined);
      const [allocated, actuated] = ['allocated_pods_state', 'actuated_pods_state'].map((file) =>
        resourcesIn(file, pod.metadata.uid),
      );
      return running.every(({ name }) => isSame(allocated?.[name], actuated?.[name]));
    };
    const isSo = (pod: Pod): boolean => isDecided(pod) && (!isResized(pod) || isApplied(pod));
    await until(() => isSo(this.#pod()), `kubelet to decide about ${this.name}`, LIMIT_MS / 1000 / slowness);
  }

  async #until({ what, holds }: Extract<Step, { kind: 'until' }>): Promise<void> {
    const { pods } = this.stage;
    const isSo = (): boolean => holds(this.#pod(), this.#before!);
    if (!(await pods.until(isSo, LIMIT_MS))) this.#missed = `timed out after ${LIMIT_MS / 1000} s: ${what}`;
  }

  async #event(reason: string): Promise<void> {
    if (!(await this.stage.events.until(() => this.#hasEvent(reason), LIMIT_MS)))
      this.#missed = `timed out after ${LIMIT_MS / 1000} s: event ${reason}`;
  }

  /** Returns once the watch has the new generation, so that the next wait does not see the pod as it was before. */
  async #patch(subresource: string, spec: object): Promise<string> {
    const { api, pods } = this.stage;
    try {
      const { metadata } = await api.patch<Pod>(`${PODS}/${this.name}/${subresource}`, { spec });
      await pods.until(() => this.#pod().metadata.generation >= metadata.generation, LIMIT_MS);
      return 'accepted';
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      return `${error.status} ${error.reason}`;
    }
  }

  /** Keeps the FIFO open, so that a container that opens it later finds the line. */
  async #open(gate: string): Promise<void> {
    writeFileSync(join(this.gates, gate), '');
    const fifo = await open(join(this.gates, `${gate}.fifo`), 'r+');
    this.#fifos.push(fifo);
    await fifo.write('open\n');
  }

  async #resizectl(changes: readonly string[]): Promise<string> {
    if (this.stage.shim() === undefined) return '';
    const args = ['dist/resizectl.js', '--endpoint', `unix://${RESIZE_SOCKET}`, 'resize', this.#pod().metadata.uid];
    const { stderr, exitCode } = await execa(process.execPath, [...args, ...changes], { reject: false });
    return exitCode === 0 ? 'accepted' : reasonIn(stderr);
  }

  async #volume(name: string, bytes: number): Promise<void> {
    const shim = this.stage.shim();
    if (shim === undefined) return;
    const deadline = Date.now() + LIMIT_MS;
    // The shim logs a remount after its end.
    while (volumeSize(this.#pod(), name) !== bytes) {
      const lines = shim.log.length;
      try {
        await shim.waitForLog(() => true, lines + 1, Math.max(deadline - Date.now(), 1));
      } catch {
        this.#missed = `timed out after ${LIMIT_MS / 1000} s: volume ${name} of ${bytes / MiB}Mi`;
        return;
      }
    }
  }

  #hasEvent(reason: string): boolean {
    const { uid } = this.#pod().metadata;
    return this.stage.events.all.some((event) => event.reason === reason && event.involvedObject.uid === uid);
  }

  #observe({ label, events = [] }: Extract<Step, { kind: 'observe' }>): void {
    const fields = {
      ...(this.#answer !== '' && {
        answer: this.#answer.replaceAll(this.name, '(name)'),
        // The text of the API server differs between releases.
        ...(/^(?:accepted$|\d)/.test(this.#answer) && { 'is rejected': this.#answer === 'accepted' ? 'no' : 'yes' }),
      }),
      reached: this.#missed === '' ? 'yes' : this.#missed,
      ...observePod(this.#pod()),
      ...Object.fromEntries(events.map((reason) => [`event ${reason}`, this.#hasEvent(reason) ? 'yes' : 'no'])),
    };
    this.#add(label, fields);
    this.#answer = '';
  }

  #add(label: string, fields: Readonly<Record<string, string>>): void {
    for (const [field, value] of Object.entries(fields)) this.#fields[`${label}: ${field}`] = value;
  }

  async #sizes({ change, until: end, undone, killAt }: Extract<Step, { kind: 'sizes' }>): Promise<void> {
    this.#before = this.#pod();
    const places = new PodPlaces(this.#pod());
    const order = await watchOrder(places);
    const killed = killAt && this.#killAt(killAt, places, change);
    const requested = this.stage.hasVolumeGate
      ? this.#patch('resize', specOf(change))
      : this.#resizectl([...(end === 'fault' ? ['--defer', '--timeout', '10s'] : []), ...argumentsOf(change)]);
    await killed;
    const answer = await requested;
    const isUndone = undone !== undefined && !this.stage.hasVolumeGate;
    await this.#sized(isUndone ? undone : change, end);
    if (end === 'done' && !isUndone && this.#missed === '') await this.#event('ResizeCompleted');
    this.#answer = '';
    // A shim that resizes a volume of kubelet may do so late. Nothing reports that it does not.
    if (this.stage.hasVolumeGate && this.stage.shim() !== undefined) await delay(GROW_DELAY_MS + 1000);
    this.#order = await order();
    if (this.stage.hasVolumeGate && answer !== 'accepted') this.#missed = `the request: ${answer}`;
  }

  /** Kills the resizing program once a value has changed. The next observation says whether that was in time. */
  async #killAt(what: string, places: PodPlaces, change: SizeChange): Promise<void> {
    const first = places.read(what);
    await until(() => places.read(what) !== first, `${what} to change`, 60, 1);
    await this.stage.killResizer(() => (this.#killed = places.has(change) ? 'too late' : 'in time'));
  }

  /** Waits until values are in force and reported, or until kubelet or the shim reports that they are not. */
  async #sized(change: SizeChange, end: 'done' | 'fault'): Promise<void> {
    const places = new PodPlaces(this.#pod());
    const isFaulty = (): boolean =>
      this.stage.hasVolumeGate
        ? this.#hasEvent('ResizeError') && resizeConditions(this.#pod()).includes('PodResizeInProgress Error')
        : this.#hasEvent('ResizeDeferred');
    const isDone = (): boolean => places.has(change) && (!this.stage.hasVolumeGate || isResized(this.#pod()));
    try {
      await until(end === 'done' ? isDone : isFaulty, `the resize of ${this.name}: ${end}`, LIMIT_MS / 1000 / slowness);
    } catch (error) {
      this.#missed = error instanceof Error ? error.message : String(error);
    }
  }

  #sizesNow(): Readonly<Record<string, string>> {
    const { uid } = this.#pod().metadata;
    const events = this.stage.events.all.filter(({ involvedObject }) => involvedObject.uid === uid);
    const [order, stored] = [this.#order, this.#answer];
    const killed = this.#killed;
    this.#order = this.#answer = this.#killed = '';
    return {
      reached: this.#missed === '' ? 'yes' : this.#missed,
      ...(order !== '' && { order }),
      ...(killed !== '' && { killed }),
      ...(stored !== '' && { stored }),
      ...observeSizes(
        this.#pod(),
        events.map(({ reason }) => reason),
      ),
    };
  }
}

/**
 * Returns the resources of a pod's containers in a state file of kubelet. The limits of the pod count for containers
 * without their own: kubelet writes them to the actuated state alone (pkg/kubelet/kuberuntime/kuberuntime_container.go,
 * setActuatedContainerResources).
 */
function resourcesIn(file: string, podUid: string): Readonly<Record<string, Resources>> {
  const { data } = JSON.parse(readFileSync(join('/var/lib/kubelet', file), 'utf8')) as { readonly data: string };
  const { entries } = JSON.parse(data) as {
    readonly entries: Readonly<
      Record<
        string,
        { readonly ContainerResources?: Readonly<Record<string, Resources>>; readonly PodLevelResources?: Resources }
      >
    >;
  };
  const { ContainerResources = {}, PodLevelResources } = entries[podUid] ?? {};
  return Object.fromEntries(
    Object.entries(ContainerResources).map(([name, resources]) => [
      name,
      { ...resources, limits: { ...PodLevelResources?.limits, ...resources.limits } },
    ]),
  );
}

/** Whether two resources are equal. kubelet writes one amount in several ways, such as `80M` and `80000k`. */
const isSame = (one: Resources = {}, other: Resources = {}): boolean =>
  (['limits', 'requests'] as const).every((kind) =>
    ['cpu', 'memory'].every((name) => thousandths(one[kind]?.[name]) === thousandths(other[kind]?.[name])),
  );

/** Returns the reason of an error. resizectl itself rejects a value that is not a quantity. */
const reasonIn = (stderr: string): string => {
  if (/: invalid (?:limit|quantity|request) /.test(stderr)) return 'INVALID_VALUE';
  return /\b([A-Z]+(?:_[A-Z]+)+): /.exec(stderr)?.[1] ?? stderr;
};

/** Returns the gates that the steps open. */
const fifosOf = (steps: readonly Step[]): readonly string[] =>
  steps.flatMap((step) => (step.kind === 'open' ? [step.gate] : []));
