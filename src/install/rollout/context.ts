import { mkdir, rm, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { postNodeEvent } from './events.ts';
import { thisHost } from './host.ts';
import { type ClusterNode, labelNode, readNode } from './node.ts';
import type { Label, Options } from './options.ts';
import type { RolloutContext } from './rollout-context.ts';
import { configIn, programIn, providedIn, stage, unstage } from './staging.ts';
import { type RetryOptions, type TurnContext, leaseStore } from './turns/index.ts';
import { VERSION_LABEL } from './version-label.ts';
import { defaultOf } from '../../config/index.ts';
import { type Clock, systemClock } from '../../core/concurrency/index.ts';
import { type DriftPlaces, driftOf, socketPathOf } from '../../endpoint/index.ts';
import { type Api, apiOf, openConnection } from '../../kubernetes/client/index.ts';

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
  return {
    random,
    say,
    clock,
    host: thisHost({
      folder: programIn(staging),
      staged: providedIn(staging),
      kubeletUnit,
      say: (line) => say(`  ${line}`),
    }),
    turns: turnsOf(options, api, { random, say, clock }),
    stage: () => stage({ from: options.program, staging, config, nodeName, credentials: options.shimCredentials }),
    unstage: () => unstage(staging),
    installFlags: [...flags, ...(config === undefined ? [] : ['--config', configIn(staging)])],
    uninstallFlags: flags,
    readNode: (signal) => readNode(api, nodeName, signal),
    labelVersion: (value, signal) => labelNode(api, nodeName, VERSION_LABEL, value, signal),
    postEvent: (reason, note, signal) => postNodeEvent(api, nodeName, reason, note, signal),
    markReady: (isReady) => markReady(options.readyFile, isReady),
    hasLabel: (labels) => has(labels, options.label),
    isCanary: (labels) => has(labels, options.canaryLabel),
    drift: () => driftOf(driftPlaces),
    repairsDrift: options.repairDrift,
    times: {
      ready: options.readyTimeout,
      retry: 600_000,
      answer: 60_000,
      poll: 2000,
      look: 20_000,
      soak: options.soak,
    },
  };
}

const driftPlaces: DriftPlaces = {
  ...{ procRoot: '/proc', hostRoot: '/proc/1/root' },
  listen: socketPathOf(defaultOf('listen')),
  stateFolder: defaultOf('stateFolder'),
};

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
