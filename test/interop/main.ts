import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { constants, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { Command, InvalidArgumentError, Option } from 'commander';
import { NodeError } from '../../tools/download/errors.ts';
import { packageRoot } from '../../tools/download/places.ts';
import { endingSignal, progressOf } from '../runner/vitest-run.ts';
import { GoMissing } from '../support/node/parts/go-module.ts';
import { runCampaign } from './campaign.ts';
import { GrpcWitness } from './grpc.ts';
import { H2specWitness } from './h2spec/witness.ts';
import { grpcName, h2specName, obtainGrpc, obtainH2spec } from './programs.ts';
import type { WitnessResult } from './results.ts';
import { accepted, countsOf, render } from './results.ts';
import type { Witness } from './witness.ts';

/** The suite `interop`: tests HTTP/2 and gRPC with third-party programs, directly and through the shim. */

const witnessNames = ['h2spec', 'grpc'] as const;

interface Flags {
  readonly only: readonly (typeof witnessNames)[number][];
  readonly clients: number;
  readonly out?: string;
  readonly shim: string;
}

const say = progressOf('interop');

function count(text: string): number {
  const clients = /^\d{1,3}$/.test(text) ? Number(text) : 0;
  // Each client has a connection with a running call, and the shim accepts 256 connections.
  if (clients < 1 || clients > 200) throw new InvalidArgumentError('expected a number from 1 to 200.');
  return clients;
}

const program = new Command('interop')
  .description(
    "Runs h2spec and grpc-go's interop client against grpc-go's interop server, directly and through the shim, case by case. " +
      'Fails if a case passes directly but not through the shim.',
  )
  .addOption(new Option('--only <name...>', 'witnesses').choices(witnessNames).default([...witnessNames]))
  .option('--clients <count>', 'gRPC clients at the same time', count, 32)
  .option('--out <folder>', 'store reports and logs in this folder')
  .option('--shim <file>', 'program of the shim', join(packageRoot(), 'dist/cri-resize-shim.js'))
  .parse();

/** Runs the selected witnesses one after the other. Reports the witnesses that cannot be built here. */
async function runAll({ only, clients, shim }: Flags, outDir: string, signal: AbortSignal): Promise<WitnessResult[]> {
  const { server, client } = await obtainGrpc(say);
  const witnesses: Readonly<Record<(typeof witnessNames)[number], () => Promise<Witness>>> = {
    h2spec: async () => new H2specWitness(await obtainH2spec(say)),
    grpc: () => Promise.resolve(new GrpcWitness(client, clients)),
  };
  const results: WitnessResult[] = [];
  for (const name of only) {
    try {
      results.push(await runCampaign(await witnesses[name](), { server, shim, outDir, say, signal }));
    } catch (error) {
      if (!(error instanceof GoMissing)) throw error;
      say(`${name} is left out: ${error.message}`);
    }
  }
  return results;
}

/** Exit codes: 0 no difference, 1 a difference, 70 the comparison could not be made, 130 ended by a signal. */
async function main(flags: Flags): Promise<number> {
  const signal = endingSignal();
  const outDir = resolve(flags.out ?? (await mkdtemp(join(tmpdir(), 'cri-resize-shim-interop-'))));
  const shim = resolve(flags.shim);
  let isKept = true;
  try {
    if (!existsSync(shim)) throw new NodeError(`the program of the shim ${shim} does not exist: run "npm run build"`);
    const results = await runAll({ ...flags, shim }, outDir, signal);
    if (results.length === 0) throw new NodeError('no witness has run');
    const { passed, failed } = countsOf(results, accepted);
    const used = [grpcName, ...(results.some(({ witness }) => witness === 'h2spec') ? [h2specName] : [])];
    process.stdout.write(`${render(results, accepted)}\n\ntested with: ${used.join(', ')}\n`);
    process.stdout.write(`interop: ${passed} passed, ${failed} failed\n`);
    isKept = failed > 0;
    return failed === 0 ? 0 : 1;
  } catch (error) {
    isKept = !signal.aborted && !(error instanceof GoMissing);
    if (signal.aborted) return 128 + constants.signals.SIGINT;
    if (!(error instanceof NodeError)) throw error;
    say(error instanceof GoMissing ? `${flags.only.join(' and ')} are left out: ${error.message}` : error.message);
    return 70;
  } finally {
    if (isKept || flags.out !== undefined) say(`reports and logs are in ${outDir}`);
    else await rm(outDir, { recursive: true, force: true });
  }
}

process.exitCode = await main(program.opts<Flags>());
