import { mkdir, rm, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { postNodeEvent } from './events.ts';
import { thisHost } from './host.ts';
import { leaseStore } from './lease.ts';
import { readNode } from './node.ts';
import type { Options } from './options.ts';
import type { RolloutContext } from './rollout-context.ts';
import { configIn, programIn, stage, stagedIn, unstage } from './staging.ts';
import { defaultOf } from '../../config/index.ts';
import { type DriftPlaces, driftOf, socketPathOf } from '../../endpoint/index.ts';
import { apiOf, openConnection } from '../../kubernetes/client/index.ts';

/**
 * Assembles the installer of one node.
 * @param config the configuration file for the shim; undefined: the node keeps its own
 * @param say writes a line to the log of the pod
 */
export function contextOf(options: Options, config: string | undefined, say: (line: string) => void): RolloutContext {
  const { nodeName, namespace, label, staging, kubeletUnit, timeout } = options;
  const api = apiOf(() => openConnection(options.kubeconfig));
  const random = (): number => Math.random();
  const places: DriftPlaces = {
    ...{ procRoot: '/proc', hostRoot: '/proc/1/root' },
    listen: socketPathOf(defaultOf('listen')),
    stateFolder: defaultOf('stateFolder'),
  };
  const flags = ['--kubelet-unit', kubeletUnit, '--timeout', timeout];
  return {
    random,
    say,
    host: thisHost({
      folder: programIn(staging),
      staged: stagedIn(staging),
      kubeletUnit,
      say: (line) => say(`  ${line}`),
    }),
    turns: {
      random,
      say,
      holder: nodeName,
      durationMs: options.leaseDuration,
      store: leaseStore(api, namespace, options.lease),
      isHealthy: async (other, signal) => (await readNode(api, other, signal))?.isReady ?? true,
    },
    stage: () => stage({ from: options.program, staging, config }),
    unstage: () => unstage(staging),
    installFlags: [...flags, ...(config === undefined ? [] : ['--config', configIn(staging)])],
    uninstallFlags: flags,
    readNode: (signal) => readNode(api, nodeName, signal),
    postEvent: (reason, note, signal) => postNodeEvent(api, nodeName, reason, note, signal),
    markReady: (isReady) => markReady(options.readyFile, isReady),
    hasLabel: (labels) => labels[label.key] === label.value,
    drift: () => driftOf(places),
    repairsDrift: options.repairDrift,
    times: { ready: options.readyTimeout, retry: 600_000, answer: 60_000, poll: 2000, look: 20_000 },
  };
}

async function markReady(file: string, isReady: boolean): Promise<void> {
  await mkdir(dirname(file), { recursive: true });
  if (isReady) await writeFile(file, '');
  else await rm(file, { force: true });
}
