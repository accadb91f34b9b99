import { mkdir, rm, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { nodeEvent } from './events.ts';
import { allowExecution, thisHost } from './host.ts';
import { type ClusterNode, labelNode, readNode } from './node.ts';
import type { Label, Options } from './options.ts';
import type { RolloutContext } from './rollout-context.ts';
import { configIn, kubeconfigIn, programIn, stage, stagingOf, unstage } from './staging.ts';
import { type RetryOptions, type TurnContext, leaseStore } from './turns/index.ts';
import { VERSION_LABEL } from './version-label.ts';
import { effectiveSettings } from '../../config/index.ts';
import { type Clock, systemClock } from '../../core/concurrency/index.ts';
import { type DriftPlaces, driftOf, socketPathOf } from '../../endpoint/index.ts';
import { type Api, apiOf, openConnection } from '../../kubernetes/client/index.ts';

/** The root of process 1 is that of the host. */
const HOST_ROOT = '/proc/1/root';

/** What is outside of the process. */
export interface Outside {
  readonly api: Api;
  readonly clock: Clock;
}

/** The clock of the pod. While it waits, the process has nothing but its timers. */
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
