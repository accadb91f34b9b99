#!/usr/bin/env node
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { parse } from 'yaml';
import { errnoOf, patientClock } from '../../core/index.ts';
import { driftOf, isShimEnabled, placesOf } from '../../kubelet/endpoint/drift.ts';
import { apiOf, IN_CLUSTER, openConnection } from '../../kubernetes/index.ts';
import { relayMetrics } from '../../monitoring/metrics-relay.ts';
import { thisHost } from './host.ts';
import { keepNode, type NodeProgram } from './keep-node.ts';
import { isNodeReady } from './node.ts';
import { type Options, readOptions } from './options.ts';
import { configIn, kubeconfigIn, programIn, stage, stagingOf, unstage } from './staging.ts';
import { uninstallAll } from './uninstall-all.ts';

/** The host's root, as the root of process 1. */
const HOST_ROOT = '/proc/1/root';
/** The program in the image. */
const PROGRAM = '/usr/local/lib/cri-resize-shim';
/** A folder of the host, mounted at the same path. */
const STAGING = '/var/lib/cri-resize-shim-installer';
/** Has the line `ready`, or why the pod is not ready. */
const STATE_FILE = '/run/cri-resize-shim-installer/state';
const NODE_CONFIG = '/etc/cri-resize-shim/config.yaml';
/** The shim's socket for metrics on the host, as the chart configures it. */
const SHIM_METRICS = '/run/cri-resize-shim/metrics.sock';

const say = (line: string): void => void process.stdout.write(`${line}\n`);

/** Returns the file. If it is empty or only comments, each node keeps its own. The shim validates the content. */
async function givenConfig(file: string): Promise<string | undefined> {
  if (file === '') return undefined;
  try {
    return parse(await readFile(file, 'utf8')) === null ? undefined : file;
  } catch (error) {
    if (errnoOf(error) === undefined) return file;
    throw error;
  }
}

/** @param config the configuration file for the shim; undefined: the node keeps its own */
async function programOf(options: Options, config: string | undefined): Promise<NodeProgram> {
  // Read once: a mounted file changes before this pod is replaced.
  const given = config === undefined ? undefined : await placesOf(config, HOST_ROOT).catch(() => undefined);
  const { mode, nodeName, shimCredentials: credentials } = options;
  const own = stagingOf(STAGING, process.pid);
  const api = apiOf(() => openConnection(IN_CLUSTER));
  const flags = Object.entries({ '--kubelet-unit': options.kubeletUnit, '--timeout': options.timeout }).flatMap(
    ([flag, value]) => (value === undefined ? [] : [flag, value]),
  );
  const staged = [
    ...(config === undefined ? [] : ['--config', configIn(own)]),
    ...(credentials === '' ? [] : ['--kubeconfig', kubeconfigIn(own)]),
  ];
  return {
    mode,
    host: thisHost(programIn(own), say),
    stage: () => stage({ from: PROGRAM, own, config, nodeName, credentials }),
    unstage: (all) => unstage(STAGING, own, all),
    flags: mode === 'install' ? [...flags, ...staged] : flags,
    isNodeReady: (signal) => isNodeReady(api, nodeName, signal),
    drift: async () => driftOf(given ?? (await placesOf(join(HOST_ROOT, NODE_CONFIG), HOST_ROOT))),
    repairsDrift: options.repairDrift,
    report: (state) => writeFile(STATE_FILE, `${state}\n`),
    say,
    clock: patientClock,
  };
}

async function main(): Promise<void> {
  const argv = process.argv.slice(2);
  const stop = new AbortController();
  // A restarted kubelet sends the signal again.
  for (const signal of ['SIGTERM', 'SIGINT'] as const)
    process.on(signal, () => stop.abort(new Error(`ended by ${signal}`)));
  if (argv[0] === 'uninstall-all') {
    process.exitCode = await uninstallAll(argv.slice(1), { say, clock: patientClock }, stop.signal);
    return;
  }
  const options = readOptions(argv);
  await mkdir(dirname(STATE_FILE), { recursive: true });
  const relay =
    options.metricsPort === 0
      ? undefined
      : await relayMetrics(options.metricsPort, join(HOST_ROOT, SHIM_METRICS), () => isShimEnabled(HOST_ROOT));
  try {
    await keepNode(await programOf(options, await givenConfig(options.config)), stop.signal);
  } catch (error) {
    if (!stop.signal.aborted) throw error;
    say(`${(stop.signal.reason as Error).message}: the node stays as it is`);
  }
  relay?.close();
  relay?.closeAllConnections();
}

await main();
