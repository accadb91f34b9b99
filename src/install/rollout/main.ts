#!/usr/bin/env node
import { readFile } from 'node:fs/promises';
import { parse } from 'yaml';
import { errnoOf } from '../../core/index.ts';
import { contextOf } from './context.ts';
import { relayMetrics } from './metrics-relay.ts';
import { readOptions } from './options.ts';
import { restoreNodes } from './restore.ts';
import { keepInstalled, leave } from './roll-out.ts';

/** The part of the grace period that is reserved for the final event and log lines, in milliseconds. */
const FINAL_EVENT_MS = 10_000;

/** The host's root, as the root of process 1. */
const HOST_ROOT = '/proc/1/root';
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

async function main(): Promise<void> {
  const argv = process.argv.slice(2);
  if (argv[0] === 'restore') {
    process.exitCode = await restoreNodes(argv.slice(1), say);
    return;
  }
  const options = readOptions(argv);
  const [stop, end] = [new AbortController(), new AbortController()];
  const ended = (signal: NodeJS.Signals): void => {
    // A restarted kubelet sends the signal again.
    if (stop.signal.aborted) return;
    say(`ended by ${signal}`);
    stop.abort(new Error(`ended by ${signal}`));
    setTimeout(
      () => end.abort(new Error('the grace period is over')),
      Math.max(0, options.grace - FINAL_EVENT_MS),
    ).unref();
  };
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, ended);
  const relay =
    options.metricsPort === 0 ? undefined : await relayMetrics(options.metricsPort, HOST_ROOT, SHIM_METRICS);
  const context = contextOf(options, await givenConfig(options.config), say);
  try {
    await keepInstalled(context, stop.signal, end.signal);
  } catch (error) {
    if (!stop.signal.aborted) throw error;
  }
  await leave(context, end.signal);
  relay?.close();
  relay?.closeAllConnections();
}

await main();
