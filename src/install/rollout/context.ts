import { mkdir, rm, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { type Clock, effectiveSettings, systemClock } from '../../core/index.ts';
import { type Drift, type DriftPlaces, driftOf } from '../../kubelet/endpoint/drift.ts';
import { socketPathOf } from '../../kubelet/endpoint/paths.ts';
import { type Api, apiOf, isForbidden, openConnection } from '../../kubernetes/index.ts';
import { nodeEvent, type PostEvent, type Reason } from './events.ts';
import { allowExecution, type Host, thisHost } from './host.ts';
import { leaseStore } from './lease.ts';
import { type ClusterNode, labelNode, readNode } from './node.ts';
import type { Label, Options } from './options.ts';
import { type RetryOptions, retry } from './retry.ts';
import { configIn, kubeconfigIn, programIn, stage, stagingOf, unstage } from './staging.ts';
import type { TurnContext } from './turns.ts';

/** The dependencies of the installer. */
export interface RolloutContext extends RetryOptions {
  readonly host: Host;
  readonly turns: TurnContext;
  /** Copies the program to the host for {@link Host.resizectl}, and removes it. */
  readonly stage: () => Promise<void>;
  readonly unstage: () => Promise<void>;
  /** Flags of `resizectl install` and `resizectl uninstall`. */
  readonly installFlags: readonly string[];
  readonly uninstallFlags: readonly string[];
  readonly readNode: (signal: AbortSignal) => Promise<ClusterNode | undefined>;
  /** Sets the label of the node that has the installed version; undefined removes it. */
  readonly labelVersion: (version: string | undefined, signal: AbortSignal) => Promise<void>;
  /** Returns a function that creates an event of this node. */
  readonly eventToPost: (reason: Reason, note: string) => PostEvent;
  /** Sets the readiness of the pod. */
  readonly markReady: (isReady: boolean) => Promise<void>;
  /** Whether the labels include that of the shim. */
  readonly hasLabel: (labels: ClusterNode['labels']) => boolean;
  /** Whether the labels are those of a canary node. */
  readonly isCanary: (labels: ClusterNode['labels']) => boolean;
  /** Returns whether kubelet's configuration has the shim. Rejects if procfs or the root of the host cannot be read. */
  readonly drift: () => Promise<Drift>;
  /** Whether to install the shim again if kubelet does not use it. */
  readonly repairsDrift: boolean;
  readonly times: Times;
}

/** Timeouts and intervals in milliseconds. */
export interface Times {
  /** The pods of all nodes start at once: each first waits for a random part of this time. */
  readonly spread: number;
  /** Maximum time for the node to become Ready after its turn. */
  readonly ready: number;
  /** Interval until a node that does not meet the requirements is checked again. */
  readonly retry: number;
  /** Interval of polls of a node that is not Ready. */
  readonly poll: number;
  /** Maximum time to read the label when the pod ends. */
  readonly answer: number;
  /** Interval of checks of kubelet's endpoint while the shim is installed. */
  readonly look: number;
  /** How long a canary node has to work before it vouches for the release. */
  readonly soak: number;
}

/** The host's root, as the root of process 1. */
const HOST_ROOT = '/proc/1/root';

/** The interfaces to the outside of the process. */
export interface Outside {
  readonly api: Api;
  readonly clock: Clock;
}

/** The clock of the pod. Its timers keep the process alive, because nothing more does while it waits. */
export const patientClock: Clock = {
  ...systemClock,
  after(ms, action) {
    const timer = setTimeout(action, ms);
    return () => clearTimeout(timer);
  },
};

/**
 * Assembles the installer of one node.
 * @param config the configuration file for the shim; undefined: the node keeps its own
 * @param say writes a line to the log of the pod
 */
export function contextOf(
  options: Options,
  config: string | undefined,
  say: (line: string) => void,
  { api, clock }: Outside = outsideOf(options),
): RolloutContext {
  const { nodeName, staging, kubeletUnit, timeout } = options;
  const random = (): number => Math.random();
  const flags = ['--kubelet-unit', kubeletUnit, '--timeout', timeout];
  const own = stagingOf(staging, process.pid);
  return {
    random,
    say,
    clock,
    host: thisHost({
      folder: programIn(own),
      staged: [own],
      kubeletUnit,
      hostRoot: HOST_ROOT,
      say: (line) => say(`  ${line}`),
    }),
    turns: turnsOf(options, api, { random, say, clock }),
    stage: () => stageOnHost(options, { own, config, say }),
    unstage: () => unstage(own),
    installFlags: [...flags, ...stagedFlags(options, own, config)],
    uninstallFlags: flags,
    readNode: (signal) => readNode(api, nodeName, signal),
    labelVersion: (value, signal) => labelNode(api, nodeName, VERSION_LABEL, value, signal),
    eventToPost: (reason, note) => nodeEvent(api, nodeName, reason, note),
    markReady: (isReady) => markReady(options.readyFile, isReady),
    hasLabel: (labels) => has(labels, options.label),
    isCanary: (labels) => has(labels, options.canaryLabel),
    drift: async () => driftOf(await driftPlaces(config)),
    repairsDrift: options.repairDrift,
    times: {
      spread: options.spread,
      ready: options.readyTimeout,
      retry: 600_000,
      answer: 60_000,
      poll: 2000,
      look: 20_000,
      soak: options.soak,
    },
  };
}

interface OnHost {
  /** The folder of this pod. */
  readonly own: string;
  readonly config: string | undefined;
  readonly say: (line: string) => void;
}

async function stageOnHost(options: Options, { own, config, say }: OnHost): Promise<void> {
  const { program: from, staging, nodeName, shimCredentials: credentials } = options;
  await stage({ from, staging, own, config, nodeName, credentials });
  await allowExecution(programIn(own), say, HOST_ROOT);
}

/** The flags of `resizectl install` for the files that {@link stage} copies. */
const stagedFlags = ({ shimCredentials }: Options, own: string, config: string | undefined): readonly string[] => [
  ...(config === undefined ? [] : ['--config', configIn(own)]),
  ...(shimCredentials === '' ? [] : ['--kubeconfig', kubeconfigIn(own)]),
];

/**
 * Returns where the shim of this node has its socket and its state. Throws ConfigError.
 * @param config the configuration file for the shim; undefined: the defaults apply
 */
export async function driftPlaces(config: string | undefined): Promise<DriftPlaces> {
  const { settings } = await effectiveSettings(config === undefined ? [] : ['--config', config]);
  const of = (key: 'listen' | 'stateFolder'): string => String(settings.find((setting) => setting.key === key)?.value);
  return {
    ...{ procRoot: '/proc', hostRoot: HOST_ROOT },
    listen: socketPathOf(of('listen')),
    stateFolder: of('stateFolder'),
  };
}

const outsideOf = ({ kubeconfig }: Options): Outside => ({
  api: apiOf(() => openConnection(kubeconfig)),
  clock: patientClock,
});

const has = (labels: ClusterNode['labels'], { key, value }: Label): boolean => labels[key] === value;

function turnsOf(options: Options, api: Api, retrying: RetryOptions): TurnContext {
  const { nodeName, parallel, revision, canaries } = options;
  return {
    ...retrying,
    ...{ holder: nodeName, parallel, revision, canaries },
    durationMs: options.leaseDuration,
    store: leaseStore(api, options.namespace, options.lease),
    isHealthy: async (other, signal) => (await readNode(api, other, signal))?.isReady ?? true,
    isCanary: async (signal) => {
      const node = await readNode(api, nodeName, signal);
      return node !== undefined && has(node.labels, options.canaryLabel);
    },
  };
}

async function markReady(file: string, isReady: boolean): Promise<void> {
  await mkdir(dirname(file), { recursive: true });
  if (isReady) await writeFile(file, '');
  else await rm(file, { force: true });
}

/** Maximum time to create an event, in milliseconds. */
export const EVENT_MS = 30_000;

export type PostingContext = Pick<RolloutContext, 'eventToPost' | 'random' | 'say' | 'clock'>;

/** Creates an event of the node, unless that takes too long, or the right is missing. */
export async function posted(
  context: PostingContext,
  reason: Reason,
  note: string,
  signal: AbortSignal,
): Promise<void> {
  const soon = AbortSignal.any([signal, AbortSignal.timeout(EVENT_MS)]);
  const created = retry('the event cannot be created', context, soon, context.eventToPost(reason, note), isForbidden);
  await created.catch((error: unknown) => {
    const why = isForbidden(error)
      ? `: ${error.message}; the installer needs the right to create events (events.k8s.io) in the namespace default`
      : '';
    context.say(`the event was not created${why}`);
  });
}

/** The label of a node with the version of the shim that is installed on it. */
export const VERSION_LABEL = 'cri-resize-shim.io/version';

/** Value of the label from the start of a removal until its success. */
export const REMOVING = 'removing';

/** Returns a version as the value of a label, which may have no plus sign (build metadata) and 63 characters. */
export const labelOf = (version: string): string => version.replaceAll('+', '_').slice(0, 63);

type LabelContext = Pick<RolloutContext, 'readNode' | 'labelVersion' | 'random' | 'say' | 'clock'>;

/** Sets the node's label to the installed version or removes it, unless too slow or a right is missing. */
export async function labelled(context: LabelContext, version: string | undefined, signal: AbortSignal): Promise<void> {
  const soon = AbortSignal.any([signal, AbortSignal.timeout(EVENT_MS)]);
  const value = version === undefined ? undefined : labelOf(version);
  const attempt = async (at: AbortSignal): Promise<void> => {
    const node = await context.readNode(at);
    if (node !== undefined && node.labels[VERSION_LABEL] !== value) await context.labelVersion(value, at);
  };
  const labelling = retry('the version label cannot be set', context, soon, attempt, isForbidden);
  await labelling.catch((error: unknown) => {
    const why = isForbidden(error) ? `: ${error.message}; the installer needs the rights to get and patch nodes` : '';
    context.say(`the version label was not set${why}`);
  });
}
