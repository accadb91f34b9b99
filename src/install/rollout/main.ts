#!/usr/bin/env node
import { readFile } from 'node:fs/promises';
import { parse } from 'yaml';
import { errnoOf } from '../../core/errors/index.ts';
import { readOptions } from './options.ts';
import { partsOf } from './parts.ts';
import { keepInstalled, leave } from './roll-out.ts';

/** Of the pod's time for its end, what is kept for the last words. */
const LAST_WORDS_MS = 10_000;

const say = (line: string): void => void process.stdout.write(`${line}\n`);

/** The file, if it says anything: comments alone leave each node its own. Whether it makes sense is for the shim to say. */
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
  const options = readOptions(process.argv.slice(2));
  const [stop, end] = [new AbortController(), new AbortController()];
  const ended = (signal: NodeJS.Signals): void => {
    // kubelet, restarted meanwhile, says it again.
    if (stop.signal.aborted) return;
    say(`ended by ${signal}`);
    stop.abort(new Error(`ended by ${signal}`));
    setTimeout(() => end.abort(new Error('no more time')), Math.max(0, options.grace - LAST_WORDS_MS)).unref();
  };
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, ended);
  const parts = partsOf(options, await givenConfig(options.config), say);
  try {
    await keepInstalled(parts, stop.signal, end.signal);
  } catch (error) {
    if (!stop.signal.aborted) throw error;
  }
  await leave(parts, end.signal);
}

await main();
